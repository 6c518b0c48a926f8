"""From a scenario to what is run on a real engine: as `build`, but the engine takes the place of a cost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

from batchwright.cluster import MakesCluster
from batchwright.engines.engine import Capacity
from batchwright.errors import InputError
from batchwright.limits import Limits
from batchwright.replications import check_loads, loads_of_all_lengths
from batchwright.scenario.build import (
    check_lengths,
    chosen_policies,
    prefix_cache,
    usable_blocks,
    written_out,
)
from batchwright.scenario.keys import Scenario, is_given
from batchwright.scenario.loads import load_of
from batchwright.scenario.policy_file import named
from batchwright.scenario.precision import PRECISION
from batchwright.scenario.split import SPLITS
from batchwright.settled import needed_model_len
from batchwright.slo import Slo, read_slo
from batchwright.workload import Workload

SEQS: Final = 16  # a CPU gains little from more,
TOKENS: Final = 512  # and its clients wait for large chunks
SIMULATED: Final = ("like", "gpu", "model", *SPLITS, *PRECISION, "gpu_memory_utilization", "cost", "profile")


@dataclass(frozen=True, kw_only=True)
class LiveScenario:
    """A scenario, ready for an engine.  `needed_model_len`: tokens of its longest request."""

    scenario: Scenario
    load: Workload
    slo: Slo | None
    policies: dict[str, Any]
    sources: dict[str, str]
    max_num_seqs: int
    max_num_batched_tokens: int
    needed_model_len: int

    def blaming(self, policy: str) -> AbstractContextManager[None]:
        """An error of the user's own policy becomes one line that names its file and place."""
        return named(self.sources[policy]) if policy in self.sources else nullcontext()

    def max_model_len(self, most: int | None) -> int:
        """What is asked for, or what the load needs, at most `most`, what the model allows."""
        asked = self.scenario.max_model_len
        if asked is not None and most is not None and asked > most:
            raise InputError(f"--max-model-len is {asked}, but the model allows {most}; lower it")
        return asked or min(self.needed_model_len, most or self.needed_model_len)

    def limits(self, capacity: Capacity, max_model_len: int) -> Limits:
        """Those of the runs.  Raises LimitError on more than the engine has."""
        given, own = self.scenario.block_size, capacity.block_size
        found = Limits(
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_model_len=max_model_len,
            block_size=given if own is None or given != Limits.block_size else own,
            num_kv_blocks=usable_blocks(self.scenario),
            enable_prefix_caching=self.scenario.enable_prefix_caching,
            **prefix_cache(self.scenario),
        )
        settled = capacity.settle(found)
        check_lengths(self.scenario, settled, self.load)
        return settled

    def notes(self, limits: Limits) -> Iterator[str]:
        """What was chosen for the user."""
        given = self.scenario
        yield from self.load.notes
        if given.max_num_batched_tokens is None:
            yield f"max_num_batched_tokens is {limits.max_num_batched_tokens}, the default of live runs"
        if given.max_num_seqs is None:
            yield f"max_num_seqs is {limits.max_num_seqs}, the default of live runs"
        if given.max_model_len is None:
            why = "which the workload needs"
            if limits.longest < self.needed_model_len:
                why = f"the most that the model allows; the workload needs {self.needed_model_len}"
            yield f"max_model_len is {limits.longest}, {why}"
        if limits.num_kv_blocks is not None:
            size, blocks = limits.block_size, limits.num_kv_blocks
            yield f"the engine has {blocks} KV blocks of {size} ({blocks * size} tokens)"

    def resolved(self, limits: Limits) -> Scenario:
        """The scenario with what was chosen for the user written out, so that it runs the same again."""
        return written_out(self.scenario, limits, {})


def prepare_live(scenario: Scenario) -> LiveScenario:
    """Read the load and the policies.  Raises BatchwrightError."""
    for key in SIMULATED:
        if is_given(scenario, key):
            raise InputError(f"{key} is given, but a live run measures the engine; leave it out")
    policies, sources = chosen_policies(scenario)
    _check_single(policies)
    slo = None if scenario.slo is None else read_slo(scenario.slo)
    load = load_of(scenario)
    check_loads(load, scenario.repeat)
    seqs = SEQS if scenario.max_num_seqs is None else scenario.max_num_seqs
    tokens = max(TOKENS, seqs) if scenario.max_num_batched_tokens is None else scenario.max_num_batched_tokens
    return LiveScenario(
        scenario=scenario,
        load=load,
        slo=slo,
        policies=policies,
        sources=sources,
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        needed_model_len=needed_model_len(loads_of_all_lengths(load, scenario.repeat)),
    )


def _check_single(policies: dict[str, Any]) -> None:
    """Raises InputError on a cluster: there is one engine."""
    for name, policy in policies.items():
        if isinstance(policy, MakesCluster):
            raise InputError(f"{name}: has several replicas, but a live run one engine; give a single policy")
