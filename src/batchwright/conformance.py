"""Replay recorded schedules of vLLM through the shipped simulator and policy.

    python -m batchwright.conformance FILE...

prints one line per file: identical, with the decisions and steps counted, or the first step
that differs, both sides.  Exits 0 only if every file is identical.  Every call of the scheduler
takes one second (`Constant(1)`, those that find nothing too), and quiet steps are skipped.
"""

from __future__ import annotations

import json
import sys
from array import array
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from batchwright.cost import Constant
from batchwright.errors import BatchwrightError, InputError
from batchwright.history import EngineStep, steps
from batchwright.limits import Limits
from batchwright.policies import Vllm
from batchwright.request import NO_KEYS, Request
from batchwright.simulator import Simulator

GROUP = 1 << 20  # keys of one prefix group
VLLM_FLAGS = (
    "max_num_scheduled_tokens", "max_num_active_seqs", "enable_chunked_prefill",
    "long_prefill_token_threshold", "long_prefill_token_threshold_adaptive",
    "scheduler_reserve_full_isl", "watermark", "policy",
)  # fmt: skip

Row = dict[str, Any]


@dataclass(frozen=True)
class Result:
    """What became of one recording; `step` is None if all steps are identical."""

    path: str
    name: str
    num_steps: int
    num_decisions: int
    step: int | None = None
    ours: Row | None = None
    theirs: Row | None = None

    def __str__(self) -> str:
        what = f"{self.path} {self.name}"
        if self.step is None:
            return f"{what}: identical, {self.num_decisions} decisions, {self.num_steps} steps"
        return f"{what}: step {self.step} differs; ours {self.ours}; recorded {self.theirs}"


def check(path: str) -> Result:
    """Replay the recording in the file `path`.  Raises InputError if it is none."""
    recording = _load(path)
    try:
        theirs = [_recorded(step) for step in recording["steps"]]
        simulator = replay(recording)
        result = Result(path, str(recording["name"]), 0, simulator.num_decisions)
    except BatchwrightError as error:
        raise InputError(f"{path}: {error}") from None
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path}: is not in the form of a recording ({type(error).__name__}: {error}); "
            "give a recording of vLLM's scheduler"
        ) from None
    ours = rows(recording, simulator)
    result = replace(result, num_steps=len(ours))
    if ours == theirs:
        return result
    pairs = enumerate(zip_longest(ours, theirs))
    at, (our, their) = next((i, pair) for i, pair in pairs if pair[0] != pair[1])
    return replace(result, step=at, ours=our, theirs=their)


def replay(recording: Row, skip: bool = True) -> Simulator:
    """Run the recorded workload with one second a step."""
    config = recording["config"]
    flags = {name: config[name] for name in VLLM_FLAGS if config.get(name) is not None}
    policy = Vllm(async_scheduling=config.get("async_scheduling", False), **flags)
    simulator = Simulator(policy, Constant(1.0, empty=1.0), limits_of(config), skip=skip)
    simulator.run(requests(recording))
    return simulator


def limits_of(config: Row) -> Limits:
    """The limits of a recorded server."""
    return Limits(
        max_num_seqs=config["max_num_seqs"],
        max_num_batched_tokens=config["max_num_batched_tokens"],
        max_model_len=config["max_model_len"],
        block_size=config["block_size"],
        num_kv_blocks=config["num_blocks"] - 1,  # without vLLM's null block
        enable_prefix_caching=config["enable_prefix_caching"],
    )


def requests(recording: Row) -> list[Request]:
    """The recorded requests, with their row as id; a prefix group becomes keys."""
    size = recording["config"]["block_size"]
    groups: dict[Any, int] = {}
    found = []
    for i, row in enumerate(recording["requests"]):
        prefix = NO_KEYS
        if row.get("prefix_group") is not None:
            first = groups.setdefault(row["prefix_group"], len(groups)) * GROUP
            shared = min(row["prefix_len"], row["prompt_len"]) // size
            prefix = array("q", range(first, first + shared))
        found.append(
            Request(
                id=i,
                arrival=float(row["arrival_step"]),
                prompt=row["prompt_len"],
                output=row["output_len"],
                priority=row.get("priority", 0),
                prefix=prefix,
            )
        )
    return found


def rows(recording: Row, simulator: Simulator) -> list[Row]:
    """The steps of `simulator` in the form of the recording."""
    ids = [row["id"] for row in recording["requests"]]
    blocks = simulator.batch.blocks
    expanded = steps(simulator.log, blocks.size, blocks.block_size)
    if recording["config"].get("async_scheduling"):
        return _asynchronous(expanded, ids, set(simulator.log.jumps))
    return [_row(step, ids) for step in expanded]


def _row(step: EngineStep, ids: list[str]) -> Row:
    return {
        "scheduled": [(ids[i], tokens) for i, tokens in step.scheduled],
        "admitted": {ids[i]: cached for i, cached in step.admitted},
        "preempted": [ids[i] for i in step.preempted],
        "finished": [ids[i] for i in step.finished],
        "free_blocks_sched": step.free_blocks_sched,
        "free_blocks": step.free_blocks,
        "running": step.running,
        "waiting": step.waiting,
    }


def _asynchronous(expanded: list[EngineStep], ids: list[str], idle: set[int]) -> list[Row]:
    """One row per call: an end is seen in the call after, so the counts still hold it.

    `idle`: steps that began after an idle time; the call before that saw the last ends.
    """
    found = []
    seen: list[str] = []
    for tick, step in enumerate(expanded):
        if seen and tick in idle:
            found.append({**_flush(expanded[tick - 1].free_blocks), "finished_before": seen})
            seen = []
        row = _row(step, ids)
        row["running"] += len(step.finished) - step.dropped
        row["waiting"] += step.dropped
        row["finished_before"], seen = seen, row.pop("finished")
        row.pop("free_blocks")
        found.append(row)
    return [*found, {**_flush(expanded[-1].free_blocks), "finished_before": seen}] if seen else found


def _flush(free_blocks: int) -> Row:
    """A call that finds nobody, but sees ends."""
    return {
        "scheduled": [],
        "admitted": {},
        "preempted": [],
        "free_blocks_sched": free_blocks,
        "running": 0,
        "waiting": 0,
    }


def _recorded(step: Row) -> Row:
    kept = {key: value for key, value in step.items() if key != "step"}
    return {**kept, "scheduled": list(step["scheduled"].items())}


def _load(path: str) -> Row:
    try:
        recording: Row = json.loads(Path(path).read_text())
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); give a recording") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not JSON ({error}); give a recording") from None
    if not isinstance(recording, dict):
        raise InputError(f"{path}: is {type(recording).__name__}, not an object; give a recording")
    missing = [key for key in ("name", "config", "requests", "steps") if key not in recording]
    if missing:
        raise InputError(f"{path}: lacks {', '.join(missing)}; give a recording of vLLM's scheduler")
    return recording


def main(paths: list[str]) -> int:
    """Check every file; 0 if all are identical, 1 if one differs, 2 on bad input."""
    if not paths:
        print("usage: python -m batchwright.conformance FILE...", file=sys.stderr)
        return 2
    differ = 0
    for path in paths:
        try:
            result = check(path)
        except BatchwrightError as error:
            print(error, file=sys.stderr)
            return 2
        print(result)
        differ += result.step is not None
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
