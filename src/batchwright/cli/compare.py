"""`batchwright compare`: one trace, several policies, one table."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from batchwright import hardware
from batchwright.cli.policy_file import load_policy, named
from batchwright.comparison import (
    DEFAULTS,
    Progress,
    Runs,
    check_model_len,
    device_of,
    kv_blocks,
    longest_model_len,
    run,
    settle,
)
from batchwright.cost import CostModel, Hosted, Roofline
from batchwright.cost_text import cost as cost_of
from batchwright.errors import InputError, nearest
from batchwright.limits import Limits
from batchwright.policies import policies as policies_of
from batchwright.report import NARROWEST, remarks, tables
from batchwright.workload import Workload

DEFAULT_GPU, DEFAULT_MODEL, DEFAULT_TP = "H100-SXM", "llama-3.1-8b", 1
DEFAULT_UTILIZATION = 0.92  # vLLM 0.32
LARGE_GPU = 70 << 30  # bytes; from here on vLLM's defaults are larger, but for the A100


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The flags of the command; None: not given."""

    trace: str
    policies: str | None
    policy_files: list[Path]
    requests: int | None
    max_tokens: str | None
    gpu: str | None
    model: str | None
    tp: int | None
    gpu_memory_utilization: float | None
    cost: str | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    max_model_len: int | None
    block_size: int
    num_gpu_blocks_override: int | None
    enable_prefix_caching: bool
    over_length: str
    as_json: bool


def compare(settings: Settings) -> None:
    """Read the trace, run every policy, print the table.  Raises BatchwrightError."""
    chosen = _policies(settings)
    load = _load(settings)
    cost, named_cost, notes = _cost(settings)
    limits, limit_notes = _limits(settings, cost, load)
    _check_lengths(settings, limits, load)
    runs = {}
    with _progress(len(chosen)) as progress:
        for name, (policy, source) in chosen.items():
            with named(source) if source else _nothing():
                runs[name] = run(name, policy, load, cost, limits, progress)
    result = Runs(load, limits, runs)
    notes = [*load.notes, *notes, *limit_notes, *(found.note for found in runs.values() if found.note)]
    if settings.as_json:
        print(json.dumps({**result.to_json(), "cost": named_cost, "notes": notes}, indent=2))
    else:
        _print(result, notes)


def _policies(settings: Settings) -> dict[str, tuple[Any, str]]:
    """Policies by name, each with the user's file that it comes from, or ''."""
    text = settings.policies
    if text is None and not settings.policy_files:
        text = ",".join(DEFAULTS)
    named_policies = {} if text is None else policies_of(text)
    chosen = {name: (policy, "") for name, policy in named_policies.items()}
    for path in settings.policy_files:
        if path.stem in chosen:
            raise InputError(f"{path}: a policy called {path.stem!r} is listed already; rename the file")
        chosen[path.stem] = (load_policy(path), str(path))
    return chosen


def _load(settings: Settings) -> Workload:
    load = Workload.open(settings.trace, max_tokens=_max_tokens(settings.max_tokens))
    if settings.requests is None:
        return load
    if not 1 <= settings.requests <= len(load):
        raise InputError(
            f"--requests is {settings.requests}, but {load.name} has {len(load)} requests; "
            f"give 1 to {len(load)}"
        )
    return load.head(settings.requests)


def _max_tokens(text: str | None) -> Any:
    if text is None or text == "exact":
        return text
    if not (text.isascii() and text.isdecimal()):
        raise InputError(f"--max-tokens is {text!r}, but must be a whole number, or exact")
    return int(text)


def _cost(settings: Settings) -> tuple[CostModel, str, list[str]]:
    """The cost model, its name, and what was chosen for the user."""
    if settings.cost is not None:
        names = ("gpu", "model", "tp", "gpu_memory_utilization")
        given = [f"--{name.replace('_', '-')}" for name in names if getattr(settings, name) is not None]
        if given:
            raise InputError(f"--cost is given together with {given[0]}; leave one of them out")
        return cost_of(settings.cost), settings.cost, [f"cost is {settings.cost}"]
    gpu = DEFAULT_GPU if settings.gpu is None else settings.gpu
    model = DEFAULT_MODEL if settings.model is None else settings.model
    tp = DEFAULT_TP if settings.tp is None else settings.tp
    flags = (("--gpu", settings.gpu), ("--model", settings.model), ("--tp", settings.tp))
    defaults = ", ".join(flag for flag, value in flags if value is None)
    name = f"roofline of {model} on {tp} x {gpu}"
    said = f"cost is a {name}{f' (default {defaults})' if defaults else ''}, uncalibrated"
    cost = Hosted(Roofline(gpu, model, tp))
    base, each = cost.base * 1e6, cost.per_running * 1e6
    host = f"the host takes {base:g} us + {each:g} us per running request a step, hidden by async scheduling"
    return cost, f"hosted {name}", [said, host]


def _limits(settings: Settings, cost: CostModel, load: Workload) -> tuple[Limits, list[str]]:
    """The limits, and a note on every one that was chosen for the user."""
    device = device_of(cost)
    is_large = isinstance(device, Roofline) and _is_large(device.gpu)
    seqs, tokens = settings.max_num_seqs, settings.max_num_batched_tokens
    notes = []
    reason = "vLLM's default on this GPU" if isinstance(device, Roofline) else "vLLM's default below 70 GiB"
    if tokens is None:
        tokens = 8192 if is_large else 2048
        notes.append(f"max_num_batched_tokens is {tokens}, {reason}")
    if seqs is None:
        seqs = min(1024 if is_large else 256, max(tokens, 1))
        bound = ", at most max_num_batched_tokens" if seqs == tokens else ""
        notes.append(f"max_num_seqs is {seqs}, {reason}{bound}")
    limits = Limits(
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        block_size=settings.block_size,
        enable_prefix_caching=settings.enable_prefix_caching,
    )
    limits, kv_note = _kv(settings, cost, limits)
    notes.append(kv_note)
    if settings.max_model_len is not None:
        check_model_len(settings.max_model_len, longest_model_len(cost))
    limits = settle(replace(limits, max_model_len=settings.max_model_len), cost, load)
    if settings.max_model_len is None:
        notes.append(_model_len_note(limits.longest, load))
    return limits, notes


def _model_len_note(longest: int, load: Workload) -> str:
    needed = int((load.prompt + load.max_tokens).max())
    if longest >= needed:
        return f"max_model_len is {longest}, which the workload needs"
    return f"max_model_len is {longest}, the most that the model allows; the workload needs {needed}"


def _kv(settings: Settings, cost: CostModel, limits: Limits) -> tuple[Limits, str]:
    if settings.num_gpu_blocks_override is not None:
        if settings.gpu_memory_utilization is not None:
            raise InputError(
                "--num-gpu-blocks-override is given together with --gpu-memory-utilization; "
                "leave one of them out"
            )
        if settings.num_gpu_blocks_override < 2:
            raise InputError(
                f"--num-gpu-blocks-override is {settings.num_gpu_blocks_override}, but must be at least 2: "
                "one block is vLLM's null block"
            )
        blocks = settings.num_gpu_blocks_override - 1
        return replace(
            limits, num_kv_blocks=blocks
        ), f"{blocks} KV blocks are usable; one is vLLM's null block"
    utilization = settings.gpu_memory_utilization
    given = DEFAULT_UTILIZATION if utilization is None else utilization
    blocks_found = kv_blocks(limits, cost, given)
    if blocks_found is None:
        return limits, "KV memory is not modelled with --cost; give --num-gpu-blocks-override"
    tokens = blocks_found * limits.block_size
    return replace(limits, num_kv_blocks=blocks_found), (
        f"{blocks_found} KV blocks of {limits.block_size} ({tokens} tokens) fit the GPU memory at "
        f"gpu_memory_utilization {given}{'' if utilization is not None else ' (default)'}"
    )


def _is_large(gpu: hardware.Gpu) -> bool:
    return gpu.memory_bytes >= LARGE_GPU and not gpu.name.startswith("A100")


def _check_lengths(settings: Settings, limits: Limits, load: Workload) -> None:
    if settings.over_length not in ("reject", "fail"):
        raise InputError(
            f"--over-length is {settings.over_length!r}{nearest(settings.over_length, ('reject', 'fail'))}"
        )
    over = np.flatnonzero(load.prompt >= limits.longest)
    if settings.over_length == "fail" and len(over):
        first = int(over[0])
        raise InputError(
            f"{len(over)} prompts are not under max_model_len {limits.longest}, the first is request {first} "
            f"of {int(load.prompt[first])} tokens; raise max_model_len or use --over-length reject"
        )


@contextmanager
def _progress(count: int) -> Iterator[Progress | None]:
    """A bar on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=count)
        finished: dict[str, float] = {}

        def report(name: str, share: float) -> None:
            finished[name] = share
            bar.update(task, description=name, completed=sum(finished.values()))

        yield report


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _print(runs: Runs, notes: list[str]) -> None:
    from rich.console import Console

    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.width = max(console.width, NARROWEST)
    console.print(runs.load.describe())
    for note in notes:
        console.print(f"  {note}")
    for part in tables(runs, console.width):
        console.print(part)
    for line in remarks(runs):
        console.print(line)

