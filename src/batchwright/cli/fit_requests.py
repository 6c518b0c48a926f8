"""`batchwright fit` where a file has the timings of requests, and no steps."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from batchwright.calibration.requests import RequestsFit, fit_requests
from batchwright.calibration.requests_report import cost_text, lines, profile_of, tables, to_json
from batchwright.calibration.served import Server, served
from batchwright.cli.fit_settings import Settings
from batchwright.cli.progress import stages
from batchwright.cli.screen import screen
from batchwright.errors import InputError
from batchwright.files import write_whole
from batchwright.imported import Imported
from batchwright.profile import as_text
from batchwright.scenario.build import DEFAULT_GPU, DEFAULT_MODEL, Prepared, prepare
from batchwright.scenario.keys import Scenario
from batchwright.scenario.precision import precision_of
from batchwright.scenario.text import read as read_scenario
from batchwright.workload import Workload

HELD_OUT: Final = 0.5  # of the requests
USUAL: Final = 600  # simulations of a fit, for the progress


@dataclass(frozen=True, kw_only=True)
class ServerFlags:
    """What is known of the server whose requests were timed; None: not given."""

    like: str | None
    gpu: str | None
    model: str | None
    tp: int | None
    policy: str | None
    load: str | None
    held_out: float | None
    sets: list[str]

    def given(self) -> dict[str, Any]:
        """The keys of a scenario."""
        keys = {"like": self.like, "gpu": self.gpu, "model": self.model, "tp": self.tp}
        keys |= {"policies": self.policy}
        return {key: value for key, value in keys.items() if value is not None}

    @property
    def is_given(self) -> bool:
        return bool(self.given() or self.load or self.sets or self.held_out is not None)


def fit(measured: Imported, name: str, settings: Settings, flags: ServerFlags) -> None:
    """Fit, print, and write a profile if one is asked for.  Raises InputError."""
    trace = None if flags.load is None else Workload.open(flags.load)
    of_file = served(measured, trace)
    scenario = read_scenario(measured.file, flags.given(), flags.sets)
    prepared = prepare(scenario, of_file.load)
    held_out = HELD_OUT if flags.held_out is None else flags.held_out
    with stages() as report:

        def told(simulations: int) -> None:
            report(f"simulation {simulations}", min(simulations / USUAL, 0.99))

        found = fit_requests(of_file, _server(prepared), held_out, told)
    text = cost_text(found.server.cost, _arguments(scenario), found.found.values)
    profile = profile_of(found, name, measured, text, scenario.max_model_len)
    if settings.output is not None:
        write_whole(settings.output, as_text(profile), settings.force)
    _print(found, measured, text, prepared.notes, settings)


def _print(found: RequestsFit, measured: Imported, text: str, notes: list[str], settings: Settings) -> None:
    if settings.as_json:
        written = None if settings.output is None else str(settings.output)
        said = to_json(found, measured, text)
        print(json.dumps({**said, "notes": [*said["notes"], *notes], "profile": written}, indent=2))
        return
    console = screen()
    for note in notes:
        console.print(f"  {note}")
    for part in (*lines(found, measured), *tables(found), *settings.end(text)):
        console.print(part)


def _server(prepared: Prepared) -> Server:
    """The one policy that is asked for.  Raises InputError on none or several."""
    scenario = prepared.scenario
    if scenario.policies is None and not scenario.policy_file:
        raise InputError(
            "requests were timed, but not the server's steps, so it is simulated; say how it was started: "
            "--like 'vllm serve ...', or --policy vllm@0.19"
        )
    if len(prepared.policies) > 1:
        raise InputError(f"one server was timed, but {len(prepared.policies)} policies are given; give one")
    (policy,) = prepared.policies.values()
    return Server(policy=policy, limits=prepared.limits, cost=prepared.cost)


def _arguments(scenario: Scenario) -> dict[str, Any]:
    """Those of a roofline that are not at their defaults."""
    found: dict[str, Any] = {"gpu": scenario.gpu or DEFAULT_GPU, "model": scenario.model or DEFAULT_MODEL}
    found |= {key: value for key in ("tp", "pp", "dp") if (value := getattr(scenario, key)) not in (None, 1)}
    found |= {"ep": True} if scenario.enable_expert_parallel else {}
    return found | precision_of(scenario)
