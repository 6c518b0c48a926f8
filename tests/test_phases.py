"""The character of a request in a step is what the expanded step says of it."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

import batchwright as bw
from batchwright.errors import InputError
from batchwright.run import Run
from batchwright.run.phases import NAMES, courses
from strategies import for_every_seed
from test_history import holds, pauses
from test_run import case, every_policy, steps_of
from test_ticks import run_of

pytestmark = pytest.mark.pure  # the layers above the core are pure Python


def expected(run: Run) -> dict[int, str]:
    """The characters of every request, step by step."""
    prompt = run.load.prompt.tolist()
    output = run.requests()["output_tokens"].tolist()
    had, left = [0] * len(prompt), [0] * len(prompt)
    seated: set[int] = set()
    came: set[int] = set()
    away: set[int] = set()  # swapped when they last lost a seat
    found: dict[int, str] = defaultdict(str)
    starts = run.steps()["start_s"].tolist()
    gone: set[int] = set()
    for step, start in zip(steps_of(run), starts, strict=True):
        came |= {id for id, arrival in enumerate(run.load.arrival.tolist()) if arrival <= start}
        gone |= set(step.aborted)
        seated -= set(step.preempted) | gone
        away -= set(step.preempted)
        away |= set(step.swapped)
        brought = dict(step.brought)
        for id, cached in step.admitted:
            seated.add(id)
            left[id] = 0 if id in brought else prompt[id] + had[id] - cached
        scheduled = dict(step.scheduled)
        for id in came - gone - set(run.rejected):
            code = character(scheduled.get(id), left[id], id in seated, had[id] == output[id], run.pads)
            found[id] += "s" if code == "." and id in away else code
        for id, tokens in scheduled.items():
            had[id] += tokens if left[id] <= 0 else left[id] == tokens
            left[id] -= tokens
        gone |= set(step.finished)
        seated -= gone
    return found


def character(tokens: int | None, left: int, is_seated: bool, is_done: bool, pads: bool) -> str:
    if not is_seated:
        return "."
    if tokens is not None:
        return "P" if left > 0 else "-"
    if not is_done:
        return "h"
    return "x" if pads else "e"


def check(run: Run) -> str:
    wanted = expected(run)
    found = courses(run, range(len(run.load)))
    for id, course in found.items():
        assert course.text(course.first, course.end) == wanted.get(id, ""), id
    return "".join(wanted.values())


@every_policy
@for_every_seed(8)
def test_every_character_is_what_the_step_says(name: str, seed: int) -> None:
    check(case(seed, name).run)


@pytest.mark.parametrize("policy", [holds, pauses])
@for_every_seed(10)
def test_so_it_is_where_decodes_miss_steps(policy: Any, seed: int) -> None:
    check(run_of(policy, seed))


@every_policy
@for_every_seed(8)
def test_so_it_is_where_a_client_goes(name: str, seed: int) -> None:
    whole = case(seed, name)
    cancels = {r.id: whole.simulator.now / (2 + r.id) for r in whole.requests[:2]}
    check(case(seed, name, cancels=cancels).run)


def test_every_character_occurs_in_these_runs() -> None:
    seen = {name: set(check(case(seed, name).run)) for seed in (1, 3, 5) for name in ("padded", "unpadded")}
    assert seen["padded"] >= set("P-x") and seen["unpadded"] >= set("P-e")
    held = "".join(check(run_of(policy, seed)) for policy in (holds, pauses) for seed in (5, 6))
    assert set("".join(map("".join, seen.values())) + held) == set(NAMES) - {"s"}  # swaps: test_swap_runs


@every_policy
@for_every_seed(5)
def test_spans_are_the_characters_without_gaps(name: str, seed: int) -> None:
    for course in courses(case(seed, name).run, [0]).values():
        spans = list(course.spans(course.first, course.end))
        drawn = "".join(code * (end - first) for code, first, end in spans)
        assert drawn == course.text(course.first, course.end)
        assert all(a[2] == b[1] and a[0] != b[0] for a, b in pairwise(spans))


def test_text_outside_a_course_is_blank() -> None:
    run = bw.compare(bw.Workload.from_columns([0.0], [4], [3]), bw.Constant(1.0), policies={"v": "orca"})["v"]
    course = courses(run, [0])[0]
    assert course.text(0, 3) == "P--"
    assert course.text(0, 6) == "P--   " and course.text(1, 2) == "-"
    assert course.text(4, 7) == "   "


def test_an_unknown_request_is_refused() -> None:
    run = bw.compare(bw.Workload.from_columns([0.0], [4], [3]), bw.Constant(1.0), policies={"v": "orca"})["v"]
    with pytest.raises(InputError, match="request 1 is not in columns; give ids of 0 to 0"):
        courses(run, [1])
