"""`batchwright export`: the load, or one run of it, in a file for another tool."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Final

import msgspec

from batchwright.cli.progress import run_each
from batchwright.cluster import MakesCluster
from batchwright.cost import memory_of
from batchwright.errors import InputError, nearest
from batchwright.export import (
    Exported,
    mooncake_trace,
    perfetto_trace,
    replay_script,
    replay_trace,
    vllm_bench_result,
)
from batchwright.export.perfetto import MOST
from batchwright.files import check_free, write_whole
from batchwright.run import Run
from batchwright.scenario.build import Prepared, prepare
from batchwright.scenario.keys import Scenario
from batchwright.scenario.loads import load_of
from batchwright.scenario.precision import needs_checkpoint, serve_flags
from batchwright.scenario.split import split_of

DEFAULT_POLICY: Final = "vllm"
SCHEMA_VERSION: Final = 1
_REPOSITORY: Final = re.compile(r"config\.json of (\S+/\S+)")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The command's own flags; None: not given."""

    output: Path
    format: str
    policy: str | None
    force: bool
    private_hashes: bool
    detailed: bool
    goodput: list[str]
    draw: int | None
    since: float
    until: float | None
    serve_model: str | None
    as_json: bool


def export(scenario: Scenario, settings: Settings) -> None:
    """Write the file.  Raises BatchwrightError; then nothing was written."""
    maker = FORMATS.get(settings.format)
    if maker is None:
        raise InputError(f"--format is {settings.format!r}{nearest(settings.format, FORMATS)}")
    _check_flags(settings)
    if settings.output.is_dir():
        raise InputError(f"{settings.output}: is a folder; give the name of a file in it")
    written, notes = maker(scenario, settings)
    for path in written:
        check_free(path, settings.force)
    for path, text in written.items():
        write_whole(path, text, settings.force)
    files = [str(path) for path in written]
    if settings.as_json:
        print(json.dumps({"schema_version": SCHEMA_VERSION, "files": files, "notes": notes}, indent=2))
        return
    print(f"{' and '.join(files)}: written")
    for note in notes:
        print(f"  {note}")


def _check_flags(settings: Settings) -> None:
    """Raises InputError on a flag of another format."""
    given = {
        "--private-hashes": (settings.private_hashes, ("mooncake",)),
        "--no-detailed": (not settings.detailed, ("vllm-bench",)),
        "--goodput": (settings.goodput, ("vllm-bench",)),
        "--draw": (settings.draw is not None, ("perfetto",)),
        "--since": (settings.since != 0, ("perfetto",)),
        "--until": (settings.until is not None, ("perfetto",)),
        "--serve-model": (settings.serve_model is not None, ("vllm-bench", "command")),
    }
    for flag, (is_given, formats) in given.items():
        if is_given and settings.format not in formats:
            known = " or ".join(formats)
            raise InputError(f"{flag} is for --format {known}, not {settings.format}; leave it out")


Made = tuple[dict[Path, str], list[str]]  # files, and what is to be said


def _mooncake(scenario: Scenario, settings: Settings) -> Made:
    load = load_of(scenario)
    notes = [load.describe(), *load.notes]
    arrival = None
    if load.has_followers:
        prepared, notes = _prepared(scenario, settings)
        arrival = _run(prepared).arrival
    elif settings.policy is not None:
        raise InputError(f"{load.name}: is exported as it comes, without a run; leave out --policy")
    made = mooncake_trace(load, arrival=arrival, private_hashes=settings.private_hashes)
    return {settings.output: made.text}, [*notes, *made.notes]


def _vllm_bench(scenario: Scenario, settings: Settings) -> Made:
    goals: dict[str, float] = {}
    for name, most in map(_goal, settings.goodput):
        if name in goals:
            raise InputError(f"--goodput {name} is given twice; leave one out")
        goals[name] = most
    prepared, notes = _prepared(scenario, settings)
    found = _run(prepared)
    notes += prepared.beyond({found.name: found})
    made = vllm_bench_result(
        found, model=_model(prepared, settings) or "", goodput=goals, is_detailed=settings.detailed
    )
    return _one(settings, made, found, notes)


def _perfetto(scenario: Scenario, settings: Settings) -> Made:
    prepared, notes = _prepared(scenario, settings)
    found = _run(prepared)
    notes += prepared.beyond({found.name: found})
    draw = MOST if settings.draw is None else settings.draw
    until = inf if settings.until is None else settings.until
    return _one(
        settings, perfetto_trace(found, requests=draw, since=settings.since, until=until), found, notes
    )


def _command(scenario: Scenario, settings: Settings) -> Made:
    """The script, and the trace that it replays beside it."""
    prepared, notes = _prepared(scenario, settings)
    if needs_checkpoint(scenario) and settings.serve_model is None:
        raise InputError(
            f"--quantization {scenario.quantization} is served from a checkpoint that is stored so; "
            "name it with --serve-model"
        )
    model = _model(prepared, settings)
    if model is None:
        raise InputError(f"{prepared.cost_name}: names no model to serve; give one with --serve-model")
    trace = settings.output.with_suffix(".jsonl")
    if trace == settings.output:
        raise InputError(
            f"{trace}: is where the trace goes; end the name of the commands in .sh, for instance"
        )
    load, (name, policy) = prepared.load, next(iter(prepared.policies.items()))
    if isinstance(policy, MakesCluster):
        raise InputError(f"{name}: is several servers, which no one command starts; give the policy of one")
    arrival = _run(prepared).arrival if load.has_followers else None
    sent = replay_trace(load, arrival)
    script = replay_script(
        load,
        prepared.flags,
        policy,
        trace=str(trace),
        model=model,
        **asdict(split_of(scenario)),
        served=serve_flags(scenario),
    )
    not_said = [f"not reproduced: {note}" for note in script.notes]
    return {trace: sent.text, settings.output: script.text}, [*notes, *sent.notes, *not_said]


FORMATS: Final[dict[str, Callable[[Scenario, Settings], Made]]] = {
    "mooncake": _mooncake,
    "vllm-bench": _vllm_bench,
    "perfetto": _perfetto,
    "command": _command,
}


def _one(settings: Settings, made: Exported, found: Run, notes: list[str]) -> Made:
    return {settings.output: made.text}, [*notes, *([found.note] if found.note else []), *made.notes]


def _prepared(scenario: Scenario, settings: Settings) -> tuple[Prepared, list[str]]:
    """The scenario with one policy, and what is to be said of it."""
    chosen, note = _with_one_policy(scenario, settings.policy)
    prepared = prepare(chosen)
    if len(prepared.policies) != 1:
        names = ", ".join(prepared.policies)
        raise InputError(f"export writes one run, but the policies are {names}; choose one with --policy")
    return prepared, [prepared.load.describe(), *prepared.notes, *note]


def _with_one_policy(scenario: Scenario, name: str | None) -> tuple[Scenario, list[str]]:
    """The scenario with the policy called `name`: one of its own, or a text such as vllm@0.19."""
    if name is None:
        if scenario.policies is not None or scenario.policy_file:
            return scenario, []
        note = f"policy is {DEFAULT_POLICY} (none was given)"
        return msgspec.structs.replace(scenario, policies=DEFAULT_POLICY), [note]
    files = [path for path in scenario.policy_file if Path(path).stem == name]
    if files:
        return msgspec.structs.replace(scenario, policies=None, policy_file=files), []
    own = scenario.policies if isinstance(scenario.policies, dict) else {}
    policies = {name: own[name]} if name in own else name
    return msgspec.structs.replace(scenario, policies=policies, policy_file=[]), []


def _run(prepared: Prepared) -> Run:
    (found,) = run_each(prepared).values()
    return found


def _model(prepared: Prepared, settings: Settings) -> str | None:
    """What `vllm serve` calls the model; None if the cost names none."""
    if settings.serve_model is not None:
        return settings.serve_model
    device = memory_of(prepared.cost)
    found = None if device is None else _REPOSITORY.fullmatch(device.model.source)
    return None if found is None else found[1]


def _goal(text: str) -> tuple[str, float]:
    """`ttft:200`, as vLLM writes it: milliseconds."""
    name, _, value = text.partition(":")
    try:
        most = float(value)
    except ValueError:
        most = -1.0
    if not 0 <= most < inf:
        raise InputError(f"--goodput is {text!r}; give a metric and milliseconds, such as ttft:200")
    return name, most
