"""From a scenario to what is run: load, cost, limits and policies, with a note on every choice made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from msgspec import structs

from batchwright.cluster import Replicas, counting_engine
from batchwright.cluster import server as server_of
from batchwright.cluster import servers as servers_of
from batchwright.comparison import DEFAULTS
from batchwright.cost import CostModel, Hosted, Layers, Roofline, device_of, memory_of
from batchwright.cost_text import cost as cost_of
from batchwright.errors import InputError, nearest
from batchwright.hardware import find_engine
from batchwright.limits import Limits
from batchwright.operators import notes_of
from batchwright.policies import Static
from batchwright.profile import Profile, beyond
from batchwright.profile import read as read_profile
from batchwright.replications import check_loads, check_repeat, loads_of_all_lengths
from batchwright.run import Run
from batchwright.scenario.keys import Scenario, is_given
from batchwright.scenario.like import like_notes
from batchwright.scenario.loads import load_of
from batchwright.scenario.measured_cost import MEASURED, measured_table
from batchwright.scenario.measured_range import range_notes, range_of
from batchwright.scenario.policy_file import load_policy, named
from batchwright.scenario.precision import PRECISION, in_words
from batchwright.scenario.profiled import with_limits
from batchwright.scenario.split import SPLITS, Split, split_of
from batchwright.settled import (
    allowed_model_len,
    check_model_len,
    engine_blocks,
    longest_model_len,
    needed_model_len,
    usual_batch,
)
from batchwright.slo import Slo, read_slo
from batchwright.workload import Workload

DEFAULT_GPU, DEFAULT_MODEL, DEFAULT_TP = "H100-SXM", "llama-3.1-8b", 1
_GPU: Final = ("gpu", "model", *SPLITS, *PRECISION, "gpu_memory_utilization")
OVER_LENGTH: Final = ("reject", "fail")
MEMORY: Final = ("gpu", "model", "gpu_memory_utilization")  # what KV blocks are counted from


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A scenario, ready to run.

    `policies`: by name.  `sources`: the user's file of those that come from one.
    `limits`: of the simulated batch.  `flags`: as the flags of one engine state them (see `split`).
    `cost_name`: the cost in a few words.  `notes`: what was chosen for the user, to be printed.
    """

    scenario: Scenario
    load: Workload
    slo: Slo | None
    cost: CostModel
    cost_name: str
    limits: Limits
    flags: Limits
    policies: dict[str, Any]
    sources: dict[str, str]
    notes: list[str]
    profile: Profile | None

    def beyond(self, runs: Mapping[str, Run]) -> list[str]:
        """Where runs leave what the profile, or the cost, was measured on, a line for each that does."""
        measured = range_of(self.cost) if self.profile is None else self.profile.range
        if not measured:
            return []
        found = {name: beyond(run.made_steps(), measured) for name, run in runs.items()}
        of = "its cost was measured on" if self.profile is None else "its profile was fitted to"
        left = f"goes beyond the steps that {of}"
        return [f"{name} {left}: {text}" for name, text in found.items() if text]

    def resolved(self) -> Scenario:
        """The scenario with what was chosen for the user written out, so that it runs the same again."""
        given, server = self.scenario, dict[str, Any]()
        if given.cost in (None, MEASURED) and given.profile is None:
            server |= {"gpu": DEFAULT_GPU, "model": DEFAULT_MODEL, "tp": DEFAULT_TP}
            if given.num_gpu_blocks_override is None:
                server["gpu_memory_utilization"] = usual_share(self.policies)
        return written_out(given, self.flags, server)

    def blaming(self, policy: str) -> AbstractContextManager[None]:
        """An error of the user's own policy becomes one line that names its file and place."""
        return named(self.sources[policy]) if policy in self.sources else nullcontext()


def written_out(given: Scenario, limits: Limits, server: dict[str, Any]) -> Scenario:
    """`given`, with what it leaves open taken from `limits`, the default policies, and `server`."""
    chosen: dict[str, Any] = {
        "max_num_seqs": limits.max_num_seqs,
        "max_num_batched_tokens": limits.max_num_batched_tokens,
        "max_model_len": limits.longest,
    } | server
    if given.policies is None and not given.policy_file:
        chosen["policies"] = list(DEFAULTS)
    missing = {key: value for key, value in chosen.items() if getattr(given, key) is None}
    return structs.replace(given, **missing)


def prepare(scenario: Scenario, load: Workload | None = None) -> Prepared:
    """Read the load, unless it is given, and make the rest.  Raises BatchwrightError."""
    profile = None if scenario.profile is None else read_profile(Path(scenario.profile))
    scenario, limits_of_profile = with_limits(scenario, profile)
    policies, sources = chosen_policies(scenario)
    slo = None if scenario.slo is None else read_slo(scenario.slo)
    check_repeat(scenario.repeat)
    load = load_of(scenario) if load is None else load
    cost, cost_name, cost_notes = _cost(scenario, profile)
    memory = _memory(scenario, cost)
    flags, limit_notes = _limits(scenario, memory, load, counting_engine(policies.values()))
    split = _split(scenario, cost)
    limits = split.together(flags)
    check_lengths(scenario, limits, load)
    policies = {name: _with_memory(policy, scenario) for name, policy in policies.items()}
    return Prepared(
        scenario=scenario,
        load=load,
        slo=slo,
        cost=cost,
        cost_name=cost_name,
        limits=limits,
        flags=flags,
        policies=policies,
        sources=sources,
        notes=[
            *load.notes,
            *like_notes(scenario),
            *cost_notes,
            *range_notes(cost, flags),
            *limits_of_profile,
            *limit_notes,
            *split.notes(limits),
        ],
        profile=profile,
    )


# --- policies -----------------------------------------------------------------


def chosen_policies(scenario: Scenario) -> tuple[dict[str, Any], dict[str, str]]:
    """Policies by name, and the files of those that come from one.  Raises InputError."""
    given = scenario.policies
    if given is None and not scenario.policy_file:
        given = ",".join(DEFAULTS)
    chosen = _with_batch_size(_named_policies(given), scenario.batch_size)
    sources = {}
    for path in map(Path, scenario.policy_file):
        if path.stem in chosen:
            raise InputError(f"{path}: a policy called {path.stem!r} is listed already; rename the file")
        chosen[path.stem] = load_policy(path)
        sources[path.stem] = str(path)
    for name in chosen:
        if not name.isprintable() or not name.strip() or name != name.strip():
            raise InputError(
                f"a policy is called {name!r}; give it a name that can be printed, with no space around it"
            )
    return chosen, sources


def _with_batch_size(chosen: dict[str, Any], batch_size: int | str | None) -> dict[str, Any]:
    """Beside every `static` of the default batch size, one of `batch_size`.  Raises InputError."""
    if batch_size is None:
        return chosen
    found: dict[str, Any] = {}
    for name, policy in chosen.items():
        found[name] = policy
        if policy == Static():
            text = f"static(batch_size={batch_size})"
            found[text] = server_of(text)
    if len(found) == len(chosen):
        raise InputError(
            f"--batch-size is {batch_size}, but no policy is a plain static; add static to --policies"
        )
    return found


def _named_policies(given: str | list[str] | dict[str, str] | None) -> dict[str, Any]:
    if given is None:
        return {}
    if isinstance(given, dict):
        return {name: server_of(text) for name, text in given.items()}
    return servers_of(given if isinstance(given, str) else ",".join(given))


def _with_memory(policy: Any, scenario: Scenario) -> Any:
    """Replicas on GPUs of their own use as much of their memory as the scenario says, if they do not say."""
    share = scenario.gpu_memory_utilization
    if not isinstance(policy, Replicas) or policy.gpus is None or share is None:
        return policy
    return replace(policy, gpu_memory_utilization=policy.gpu_memory_utilization or share)


# --- cost ---------------------------------------------------------------------


def _cost(scenario: Scenario, profile: Profile | None) -> tuple[CostModel, str, list[str]]:
    """The cost model, its name, and what was chosen for the user."""
    if profile is not None:
        _check_alone(scenario, "profile", ("cost", *_GPU))
        return profile.model(), f"profile {profile.name}", list(profile.notes())
    if scenario.cost is not None and scenario.cost != MEASURED:
        found = cost_of(scenario.cost)
        has_times = isinstance(device_of(found), Layers)  # alone: GPU and model say how many KV blocks fit
        names = [name for name in _GPU if not (has_times and name in MEMORY)]
        _check_alone(scenario, "cost", names)
        return found, scenario.cost, [f"cost is {scenario.cost}", *notes_of(found)]
    gpu = DEFAULT_GPU if scenario.gpu is None else scenario.gpu
    model = DEFAULT_MODEL if scenario.model is None else scenario.model
    split = split_of(scenario)
    flags = (("--gpu", scenario.gpu), ("--model", scenario.model), ("--tp", scenario.tp))
    defaults = ", ".join(flag for flag, value in flags if value is None)
    what = f"of {model} on {split.num_gpus} x {gpu}{split}{in_words(scenario)}"
    chosen = f" (default {defaults})" if defaults else ""
    if scenario.cost == MEASURED:
        table, name = measured_table(scenario, gpu, model, split), f"measured times {what}"
        cost, host = _hosted(table, split)
        return cost, f"hosted {name}", [f"cost is {name}{chosen}", *notes_of(table), host]
    name = f"roofline {what}"
    said = f"cost is a {name}{chosen}, uncalibrated"
    cost, host = _hosted(_roofline(scenario, gpu, model, split), split)
    return cost, f"hosted {name}", [said, host]


def _roofline(scenario: Scenario, gpu: str, model: str, split: Split) -> Roofline:
    return Roofline(
        gpu,
        model,
        split.tp,
        pp=split.pp,
        dp=split.dp,
        ep=split.ep,
        dtype=scenario.dtype or "auto",
        quantization=scenario.quantization,
        kv_cache_dtype=scenario.kv_cache_dtype or "auto",
    )


def _hosted(device: CostModel, split: Split) -> tuple[Hosted, str]:
    """The device with the host of every rank, and what is said of it."""
    one = Hosted(device)
    # Every rank has a host of its own, which schedules each micro-batch.
    cost = Hosted(one.cost, one.base * split.pp, one.per_running / split.dp)
    base, each = cost.base * 1e6, cost.per_running * 1e6
    host = f"the host takes {base:g} us + {each:g} us per running request a step; async scheduling hides it"
    return cost, host


def _memory(scenario: Scenario, cost: CostModel) -> CostModel:
    """The model of the memory: `cost`, or where that has only times the GPU and the model that are named."""
    device = device_of(cost)
    if not isinstance(device, Layers):
        return cost
    if scenario.gpu is None or scenario.model is None:
        given = [f"--{name.replace('_', '-')}" for name in MEMORY if is_given(scenario, name)]
        if given:
            raise InputError(
                f"{given[0]} is given beside --cost; give both --gpu and --model, to count KV blocks from"
            )
        return cost
    return Roofline(scenario.gpu, scenario.model, device.tp, dp=device.times.dp, ep=device.ep)


def _split(scenario: Scenario, cost: CostModel) -> Split:
    """How the model is split: as the scenario says, or the layer times that its cost names."""
    device = device_of(cost)
    if not isinstance(device, Layers):
        return split_of(scenario)
    return Split(tp=device.tp, pp=1, dp=device.times.dp, ep=device.ep)


def _check_alone(scenario: Scenario, key: str, others: Sequence[str]) -> None:
    """Raises InputError if `key` is given together with one of `others`."""
    given = [f"--{name.replace('_', '-')}" for name in others if is_given(scenario, name)]
    if given:
        raise InputError(f"--{key} is given together with {given[0]}; leave one of them out")


# --- limits -------------------------------------------------------------------


def _limits(
    scenario: Scenario, cost: CostModel, load: Workload, engine: str | None
) -> tuple[Limits, list[str]]:
    """The limits of one engine, and a note on every one that was chosen for the user."""
    seqs, tokens, notes = _batch_size(scenario, cost, engine)
    limits = Limits(
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        block_size=scenario.block_size,
        enable_prefix_caching=scenario.enable_prefix_caching,
        **prefix_cache(scenario),
    )
    limits, kv_note = _kv(scenario, cost, limits, engine)
    longest = scenario.max_model_len
    if longest is not None:
        check_model_len(longest, longest_model_len(cost))
        limits = replace(limits, max_model_len=longest)
    check_loads(load, scenario.repeat)
    if longest is not None:
        return limits, [*notes, kv_note]
    needed = needed_model_len(loads_of_all_lengths(load, scenario.repeat))
    limits = replace(limits, max_model_len=allowed_model_len(needed, cost))
    return limits, [*notes, kv_note, _model_len_note(limits.longest, needed)]


def prefix_cache(scenario: Scenario) -> dict[str, Any]:
    """What the scenario says of the prefix cache, for `Limits`.  Raises InputError if there is none."""
    keys = ("prefix_cache_blocks", "prefix_eviction")
    given = {key: getattr(scenario, key) for key in keys if getattr(scenario, key) is not None}
    if given and not scenario.enable_prefix_caching:
        flag = f"--{next(iter(given)).replace('_', '-')}"
        raise InputError(f"{flag} is given, but prefix caching is off; leave one of them out")
    return given


def _batch_size(scenario: Scenario, cost: CostModel, engine: str | None) -> tuple[int, int, list[str]]:
    """`max_num_seqs` and `max_num_batched_tokens`."""
    usual_seqs, usual_tokens = usual_batch(cost, engine)
    seqs, tokens = scenario.max_num_seqs, scenario.max_num_batched_tokens
    notes = []
    reason = "vLLM's default on this GPU" if memory_of(cost) else "vLLM's default below 70 GiB"
    if tokens is None:
        tokens = usual_tokens
        notes.append(f"max_num_batched_tokens is {tokens}, {reason}")
    if seqs is None:
        seqs = min(usual_seqs, max(tokens, 1))
        bound = ", at most max_num_batched_tokens" if seqs == tokens else ""
        notes.append(f"max_num_seqs is {seqs}, {reason}{bound}")
    return seqs, tokens, notes


def _model_len_note(longest: int, needed: int) -> str:
    if longest >= needed:
        return f"max_model_len is {longest}, which the workload needs"
    return f"max_model_len is {longest}, the most that the model allows; the workload needs {needed}"


def _kv(scenario: Scenario, cost: CostModel, limits: Limits, engine: str | None) -> tuple[Limits, str]:
    override, utilization = usable_blocks(scenario), scenario.gpu_memory_utilization
    if override is not None:
        if utilization is not None:
            raise InputError(
                "--num-gpu-blocks-override is given together with --gpu-memory-utilization; "
                "leave one of them out"
            )
        note = f"{override} KV blocks are usable; one is vLLM's null block"
        return replace(limits, num_kv_blocks=override), note
    counted = find_engine(engine)
    given = counted.gpu_memory_utilization if utilization is None else utilization
    found = engine_blocks(limits, cost, given, engine)
    if found is None:
        return limits, f"KV memory is not modelled with {_source(scenario)}; give --num-gpu-blocks-override"
    tokens = found * limits.block_size
    how = "" if engine is None or counted == find_engine(None) else f", as {counted} counts them"
    return replace(limits, num_kv_blocks=found), (
        f"{found} KV blocks of {limits.block_size} ({tokens} tokens) fit the GPU memory at "
        f"gpu_memory_utilization {given}{'' if utilization is not None else ' (default)'}{how}"
    )


def _source(scenario: Scenario) -> str:
    return "--cost" if scenario.profile is None else "this profile"


def usual_share(policies: dict[str, Any]) -> float:
    """The default `gpu_memory_utilization` of the vLLM that counts KV blocks for these policies."""
    return find_engine(counting_engine(policies.values())).gpu_memory_utilization


def usable_blocks(scenario: Scenario) -> int | None:
    """KV blocks that requests can use, if the scenario says how many there are.  Raises InputError."""
    override = scenario.num_gpu_blocks_override
    if override is None:
        return None
    if override < 2:
        raise InputError(
            f"--num-gpu-blocks-override is {override}, but must be at least 2: one block is vLLM's null block"
        )
    return override - 1


def check_lengths(scenario: Scenario, limits: Limits, load: Workload) -> None:
    """Raises InputError on prompts that are too long, if the scenario says so, or on what it says."""
    if scenario.over_length not in OVER_LENGTH:
        raise InputError(
            f"--over-length is {scenario.over_length!r}{nearest(scenario.over_length, OVER_LENGTH)}"
        )
    over = np.flatnonzero(load.prompt >= limits.longest)
    if scenario.over_length == "fail" and len(over):
        first = int(over[0])
        raise InputError(
            f"{len(over)} prompts are not under max_model_len {limits.longest}, the first is request {first} "
            f"of {int(load.prompt[first])} tokens; raise max_model_len or use --over-length reject"
        )
