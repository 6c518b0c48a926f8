"""The runs beside the formulas: the load itself, and the same lengths all at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import Field, fields, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from batchwright.comparison import run
from batchwright.cost import Constant, CostModel
from batchwright.interval import Interval, section_interval, series_interval, t_interval
from batchwright.limits import Limits
from batchwright.policies import Dynamic, Static, Vllm
from batchwright.policies.check import DEFAULT_BATCH
from batchwright.policies.static import AUTO
from batchwright.run import Run
from batchwright.theory_report.facts import Facts
from batchwright.workload import Workload

SATURATED = 5_000  # requests of a saturated run, drawn from the lengths of the load
DRAWS = 5  # of lengths, for the gain
DRAWN = 2_000  # requests of each
SECTIONS = 20
KNOWN: Final = (  # flags that the formulas use, or (version, preferred_sizes) that need no word here
    "version", "max_num_seqs", "max_num_batched_tokens", "max_num_scheduled_tokens", "max_num_active_seqs",
    "async_scheduling", "batch_size", "padded", "max_batch_size", "window", "preferred_sizes",
)  # fmt: skip


class Simulated:
    """Runs, made when they are asked for.

    `vllm`, `static`, `dynamic`: the policies whose formulas are shown; `size`, `dynamic_size`: their batches.
    """

    def __init__(
        self, load: Workload, facts: Facts, cost: CostModel, limits: Limits, policies: Sequence[Any]
    ) -> None:
        self.load, self.facts, self.cost, self.limits = load, facts, cost, limits
        self.vllm = _first(policies, Vllm, Vllm())
        self.static = replace(_first(policies, Static, Static()), streamed=False)
        self.dynamic = _first(policies, Dynamic, Dynamic())
        if isinstance(self.static.batch_size, str):
            self.static = replace(self.static, batch_size=None)
        self.size = self.static.batch_size or min(DEFAULT_BATCH, limits.max_num_seqs)
        self.dynamic_size = self.dynamic.max_batch_size or min(DEFAULT_BATCH, limits.max_num_seqs)

    def run(self, policy: Any, load: Workload | None = None, cost: CostModel | None = None) -> Run:
        """One run; by default of the load itself, at its own cost."""
        return run("theory", policy, load or self.load, cost or self.cost, self.limits)

    def at_once(self, count: int, seed: int = 0, is_free: bool = False) -> Workload:
        """`count` requests at time 0, drawn from those that are served; `is_free`: prompts of one token."""
        random = np.random.Generator(np.random.PCG64(seed))
        rows = random.integers(0, len(self.facts.outputs), count)
        served = np.flatnonzero(self.load.prompt < self.limits.longest)[rows]
        limits = self.load.max_tokens[served]
        outputs = self.facts.outputs[rows]
        prompts = np.ones_like(outputs) if is_free else self.facts.prompts[rows]
        name = self.load.name
        return Workload.from_columns(np.zeros(count), prompts, outputs, max_tokens=limits, name=name)

    @cached_property
    def saturated(self) -> Run:
        """vLLM's policy with always somebody waiting, up to the last drain."""
        return self.run(self.vllm, self.at_once(SATURATED))

    def saturated_tpot(self) -> Interval:
        """TPOT while the batch is full: the first and last fifth of the requests are left out."""
        found = self.saturated.requests()["tpot_s"]
        return series_interval(found[SATURATED // 5 : -SATURATED // 5])

    def saturated_rate(self) -> Interval:
        """Requests/s then: the first tenth and the last drain are left out."""
        found = self.saturated.requests()
        last = float(np.nanmax(found["first_token_s"]))
        edges = np.linspace(0.1 * last, 0.95 * last, SECTIONS + 1)
        parts = np.diff(np.searchsorted(np.sort(found["finished_s"]), edges)) / np.diff(edges)
        return section_interval(float(parts.mean()), parts.tolist())

    def batch_seconds(self, policy: Static, size: int) -> Interval:
        """Seconds of one full static batch."""
        ends = np.unique(self.run(policy, self.at_once(SATURATED // size * size)).requests()["finished_s"])
        return series_interval(np.diff(np.concatenate(([0.0], ends))))

    def gain(self, count: int, draws: int, is_free: bool = False) -> Interval:
        """Time of static over time of continuous - 1, both with `size` slots, over draws of the lengths.

        `is_free`: at a constant step and with prompts of one token.
        """
        cost = Constant(1.0) if is_free else self.cost
        slots = Vllm(max_num_seqs=self.size, async_scheduling=False)
        ratios = []
        for seed in range(draws):
            load = self.at_once(count, seed, is_free)
            static = self.run(Static(self.size, padded=False), load, cost).summary.duration
            served = self.run(slots, load, cost).summary.duration
            ratios.append(static / served - 1)
        return t_interval(ratios)

    def longest(self, size: int) -> Interval:
        """E[max of `size`] / E[o], over batches of requests as they come."""
        outputs = self.facts.outputs
        whole = outputs[: len(outputs) // size * size].reshape(-1, size)
        return series_interval(whole.max(axis=1) / self.facts.output)

    @cached_property
    def continuous(self) -> Run:
        """vLLM's policy on the load."""
        return self.run(self.vllm)


def used_policies(policies: Sequence[Any]) -> list[Any]:
    """Those whose formulas are shown: the first Static, Dynamic and Vllm."""
    found = [_first(policies, kind, None) for kind in (Static, Dynamic, Vllm)]
    return [policy for policy in found if policy is not None]


def vllm_limits(policy: Vllm, server: Limits) -> Limits:
    """`server` with the policy's own slots and tokens of a step, and no more slots than get a token in it.

    Raises LimitError on more slots than max_num_batched_tokens.
    """
    seqs = policy.max_num_active_seqs or policy.max_num_seqs or server.max_num_seqs
    tokens = policy.max_num_batched_tokens or server.max_num_batched_tokens
    own = replace(server, max_num_seqs=seqs, max_num_batched_tokens=tokens)
    budget = policy.max_num_scheduled_tokens or tokens
    return replace(own, max_num_seqs=min(seqs, budget), max_num_batched_tokens=budget)


def not_in_formulas(policies: Sequence[Any]) -> Iterator[str]:
    """What the policies whose formulas are shown set, but no formula uses."""
    for policy in used_policies(policies):
        name = type(policy).__name__.lower()
        if getattr(policy, "batch_size", None) == AUTO:
            yield f"no formula finds batch_size={AUTO}: batches of {DEFAULT_BATCH}, or of all slots if fewer"
        left = [field.name for field in fields(policy) if _is_left_out(policy, field)]
        if left:
            yield f"no formula uses {', '.join(left)} of {name}"


def _is_left_out(policy: Any, field: Field[Any]) -> bool:
    return field.name not in KNOWN and getattr(policy, field.name) != field.default


def _first(policies: Sequence[Any], kind: type, default: Any) -> Any:
    return next((policy for policy in policies if isinstance(policy, kind)), default)
