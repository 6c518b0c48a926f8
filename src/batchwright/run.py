"""One policy on one workload: what it did, as columns made from its log when they are asked for.

    mean batch    = sum of all stays / busy time          (seconds of requests that run)
    KV occupancy  = sum of taken share * seconds / busy time, over the stretches
    throughput    = tokens of finished requests / (last end - first arrival)

Busy time is the time in which steps run.  Blocks are taken evenly inside a stretch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from batchwright.batch import PAD
from batchwright.errors import InputError, nearest
from batchwright.history import EngineStep, steps
from batchwright.limits import UNLIMITED
from batchwright.log import ABORTED, COMPLETE, DROPPED, PREEMPTED, STAY
from batchwright.metrics import Difference, Numbers, Spread, paired, spread, tpot
from batchwright.simulator import Simulator
from batchwright.step import Step
from batchwright.workload import Workload

BEHIND: Final = 1.1
METRICS: Final = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "E2E"}


@dataclass(frozen=True)
class Summary:
    """One row of a comparison.  Seconds, tokens and requests; nan: not applicable.

    mean_batch     requests that run, averaged over the time in which the engine is busy
    kv_occupancy   share of the KV blocks that are taken, averaged over the same time; nan if
                   memory is not modelled.  Blocks set aside at admission count as taken
    """

    num_requests: int
    num_finished: int
    num_rejected: int
    num_cut: int  # outputs that ended at max_model_len (the workload has cut those over max_tokens)
    num_preemptions: int
    num_steps: int
    num_decisions: int
    duration: float  # from the first arrival to the last end
    output_throughput: float  # output tokens/s
    total_throughput: float  # prompt and output tokens/s
    ttft: Spread
    tpot: Spread
    e2e: Spread
    mean_batch: float
    kv_occupancy: float
    kv_peak: float
    hit_rate: float  # share of prompt tokens found in the prefix cache when first admitted; nan if
    # caching is off or the workload says of no prompt how it begins


class Run:
    """The result of one policy.  `name` is how the policy was called."""

    def __init__(self, name: str, load: Workload, simulator: Simulator) -> None:
        self.name = name
        self.note = ""  # what was chosen for the user
        self.load = load
        self.limits = simulator.batch.limits
        self.log = simulator.log
        self.is_streamed = simulator.batch.is_streamed
        self.pads = simulator.batch.on_end == PAD
        self.rejected = simulator.rejected
        self.num_cut = simulator.num_cut
        self.num_decisions = simulator.num_decisions
        self.caches = simulator.batch.blocks.caching and load.has_prefixes
        self.log.pack()
        self.price: Callable[[Step, int], float] = simulator.stretch  # seconds of k quiet steps

    def requests(self) -> dict[str, Numbers]:
        """One row per request, in order of arrival; nan for what a request never had.

        Times in seconds from the first arrival, lengths in tokens.
        """
        return _read_only(self._requests)

    def steps(self) -> dict[str, Numbers]:
        """One row per step, in order."""
        return _read_only(self._steps)

    def stretches(self) -> dict[str, Numbers]:
        """One row per quiet stretch, in order: `step` is its first, the times are in seconds."""
        steps = self._column("steps")
        return {"step": self._ends - steps, "steps": steps, "start_s": self._begins, "end_s": self._times}

    @cached_property
    def summary(self) -> Summary:
        """The numbers of a comparison."""
        columns = self._requests
        is_done = ~np.isnan(columns["finished_s"])
        output = int(columns["output_tokens"][is_done].sum())
        prompt = int(columns["prompt_tokens"][is_done].sum())
        duration = float(np.nanmax(columns["finished_s"])) if is_done.any() else np.nan
        occupancy, peak = self._occupancy()
        return Summary(
            num_requests=len(is_done),
            num_finished=int(is_done.sum()),
            num_rejected=len(self.rejected),
            num_cut=self.num_cut,
            num_preemptions=int(columns["preemptions"].sum()),
            num_steps=int(self._ends[-1]) if len(self._ends) else 0,
            num_decisions=self.num_decisions,
            duration=duration,
            output_throughput=output / duration,
            total_throughput=(prompt + output) / duration,
            ttft=spread(columns["ttft_s"]),
            tpot=spread(columns["tpot_s"]),
            e2e=spread(columns["e2e_s"]),
            mean_batch=self._mean_batch(),
            kv_occupancy=occupancy,
            kv_peak=peak,
            hit_rate=self._hit_rate(),
        )

    @property
    def falls_behind(self) -> bool:
        """Do waits grow with the trace?

        True if the run takes over 1.1 times the span of the arrivals, and the last quarter of the
        requests over twice as long as the first (mean E2E).  Not a test of saturation.
        """
        quarter = len(self.load) // 4
        if quarter == 0 or not self.summary.duration > BEHIND * self.load.span > 0:
            return False
        e2e = self._requests["e2e_s"]
        first, last = spread(e2e[:quarter]).mean, spread(e2e[-quarter:]).mean
        return last > 2 * first

    def __sub__(self, other: Run) -> RunDifference:
        """The paired difference to a run of the same workload.  Raises InputError on another."""
        if self.load != other.load:
            raise InputError(
                f"{self.name} ran on {self.load.name}, {other.name} on another load, {other.load.name}; "
                "compare runs of one workload"
            )
        return RunDifference(self, other)

    # --- columns --------------------------------------------------------------

    @cached_property
    def _stays(self) -> dict[str, Numbers]:
        """The fields of every stay."""
        return {name: self._column(name) for name in STAY}

    def _column(self, name: str) -> Numbers:
        return np.frombuffer(self.log.column(name), np.int64)

    @cached_property
    def _ends(self) -> Numbers:
        """The tick after every stretch."""
        return np.cumsum(self._column("steps"))

    @cached_property
    def _times(self) -> Numbers:
        """The end of every stretch, in seconds."""
        return np.frombuffer(self.log.seconds("times"), np.float64)

    @cached_property
    def _begins(self) -> Numbers:
        """The start of every stretch, in seconds: the end of the one before, or of an idle time."""
        begins = np.concatenate(([0.0], self._times))[:-1]
        first_ticks = np.concatenate(([0], self._ends))[:-1]
        at = np.searchsorted(first_ticks, self.log.jumps)
        is_inside = at < len(begins)
        begins[at[is_inside]] = np.array(self.log.jump_times)[is_inside]
        return begins

    @property
    def _is_admitted(self) -> Numbers:
        """Which stays had a seat."""
        how = self._stays["how"]
        result: Numbers = (how != DROPPED) & ((how != ABORTED) | (self._stays["seat"] > 0))
        return result

    @cached_property
    def _requests(self) -> dict[str, Numbers]:
        load = self.load
        count = len(load)
        is_last = np.isin(self._stays["how"], (COMPLETE, DROPPED))
        first_token, finished = np.full(count, np.nan), np.full(count, np.nan)
        ids = self._stays["id"][is_last]
        if len(ids) and (ids.max() >= count or len(np.unique(ids)) < len(ids)):
            raise InputError(
                f"{self.name}: the requests of the run are not those of {self.load.name}, whose ids are 0 to "
                f"{count - 1}; run load.requests()"
            )
        first_token[ids] = np.frombuffer(self.log.seconds("first_token"), np.float64)
        finished[ids] = np.frombuffer(self.log.seconds("finished"), np.float64)
        output = np.minimum(load.output, np.maximum(self.limits.longest - load.prompt, 0))
        preempted = self._stays["id"][self._stays["how"] == PREEMPTED]
        cached = np.bincount(
            self._stays["id"][self._is_admitted], self._stays["cached"][self._is_admitted], minlength=count
        )
        per_token = tpot(first_token, finished, output)
        return {
            "id": np.arange(count),
            "arrival_s": load.arrival,
            "prompt_tokens": load.prompt,
            "output_tokens": output,
            "cached_tokens": cached.astype(np.int64),
            "preemptions": np.bincount(preempted, minlength=count),
            "first_token_s": first_token,
            "finished_s": finished,
            "ttft_s": first_token - load.arrival,
            "tpot_s": per_token if self.is_streamed else np.full(count, np.nan),
            "e2e_s": finished - load.arrival,
        }

    @cached_property
    def _steps(self) -> dict[str, Numbers]:
        found = steps(self.log, self.limits.blocks, self.limits.block_size, self.pads)
        begin, end = self._step_times(found)
        return {
            "step": np.arange(len(found)),
            "start_s": begin,
            "end_s": end,
            "prefill_tokens": np.array([step.prefill_tokens for step in found], np.int64),
            "num_decodes": np.array([step.num_decodes for step in found], np.int64),
            "running": np.array([step.running for step in found], np.int64),
            "waiting": np.array([step.waiting for step in found], np.int64),
            "preempted": np.array([len(step.preempted) for step in found], np.int64),
            "finished": np.array([len(step.finished) for step in found], np.int64),
            "free_blocks": np.array([step.free_blocks_sched for step in found], np.int64),
        }

    def _step_times(self, found: list[EngineStep]) -> tuple[Numbers, Numbers]:
        """The start and the end of every step; those inside a stretch are priced anew."""
        ends = np.empty(len(found))
        first = 0
        for i, last in enumerate(self._ends):
            if last - first > 1:
                quiet = Step()
                step = found[first]
                quiet.quiet(step.num_decodes, step.padded_rows, step.context_tokens)
                ends[first : last - 1] = [
                    self._begins[i] + self.price(quiet, k) for k in range(1, last - first)
                ]
            ends[last - 1] = self._times[i]
            first = last
        begins = np.concatenate(([0.0], ends))[:-1]
        begins[np.concatenate(([0], self._ends))[:-1].astype(int)] = self._begins
        return begins, ends

    # --- averages over time ---------------------------------------------------

    def _mean_batch(self) -> float:
        """Requests that run, over the busy time: the sum of all stays over that time."""
        admitted = self._stays["admitted"][self._is_admitted]
        until = self._stays["until"][self._is_admitted]
        if len(admitted) == 0:
            return np.nan
        first_ticks = np.concatenate(([0], self._ends[:-1]))
        began = self._begins[np.searchsorted(first_ticks, admitted)]
        ended = self._times[np.searchsorted(self._ends, np.maximum(until, 1))]
        return float((ended - began).sum() / self._busy.sum())

    @property
    def _busy(self) -> Numbers:
        """Seconds of every stretch."""
        return self._times - self._begins

    def _hit_rate(self) -> float:
        """Cached tokens over prompt tokens, in the first stay of every request that was admitted."""
        ids = self._stays["id"][self._is_admitted]
        cached = self._stays["cached"][self._is_admitted]
        if len(ids) == 0 or not (self.caches or cached.any()):
            return np.nan
        order = np.lexsort((self._stays["seat"][self._is_admitted], ids))
        ids, first = np.unique(ids[order], return_index=True)
        return float(cached[order][first].sum() / self.load.prompt[ids].sum())

    def _occupancy(self) -> tuple[float, float]:
        """Mean and peak share of taken blocks; inside a stretch they are taken evenly."""
        if self.limits.blocks == UNLIMITED or len(self._times) == 0:
            return np.nan, np.nan
        after = self.limits.blocks + np.cumsum(self._column("freed") - self._column("taken"))
        free = after - self._column("freed")
        before = np.concatenate(([self.limits.blocks], after[:-1]))
        is_quiet = self._column("steps") > 1
        mean = np.where(is_quiet, (free + np.maximum(before, free)) / 2, free)
        taken = 1 - mean / self.limits.blocks
        return float((taken * self._busy).sum() / self._busy.sum()), float(
            1 - free.min() / self.limits.blocks
        )


def _read_only(columns: dict[str, Numbers]) -> dict[str, Numbers]:
    for column in columns.values():
        column.setflags(write=False)
    return dict(columns)


@dataclass(frozen=True)
class RunDifference:
    """Request by request, how much longer `a` takes than `b`."""

    a: Run
    b: Run

    def metric(self, name: str) -> Difference:
        """`name`: ttft_s, tpot_s or e2e_s.  Raises InputError on another."""
        if name not in METRICS:
            raise InputError(f"no metric is called {name!r}{nearest(name, METRICS)}")
        return paired(self.a.requests()[name], self.b.requests()[name])

    def __str__(self) -> str:
        lines = [f"{self.a.name} - {self.b.name}, mean of paired differences with 95 % interval"]
        for name, title in METRICS.items():
            found = self.metric(name)
            if np.isnan(found.mean):
                lines.append(f"  {title}  not applicable")
            else:
                lines.append(f"  {title}  {found.mean:+.4g} s  [{found.low:+.4g}, {found.high:+.4g}]")
        return "\n".join(lines)
