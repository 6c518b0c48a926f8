"""A row of the timeline is what the request does, step by step."""

from __future__ import annotations

import re

import numpy as np
import pytest
from rich.console import Console

import batchwright as bw
from batchwright.drawing import LEGEND, STYLES, Window, draw, legend, panels
from batchwright.errors import InputError
from batchwright.run import Run
from batchwright.run.phases import courses
from batchwright.workload import Workload, chat
from strategies import for_every_seed
from test_run import case, every_policy, steps_of

pytestmark = pytest.mark.pure  # the layers above the core are pure Python

WIDE = 100_000


def rows_of(run: Run, **window: int) -> list[str]:
    """The characters of every request at one character a step."""
    (panel,) = panels({"p": run}, Window(ids=range(len(run.load)), width=WIDE, scale=1, **window))
    return [cells for _, cells in panel.rows]


def idle_columns(run: Run, first: int, end: int) -> list[int]:
    """Where the columns of idle times are, when each step from `first` to `end` has one."""
    jumps = [tick for tick in sorted(set(run.log.jumps)) if first <= tick < end]
    return [tick - first + place for place, tick in enumerate(jumps)]


@every_policy
@for_every_seed(6)
def test_without_idle_columns_a_row_is_the_course_of_its_request(name: str, seed: int) -> None:
    run = case(seed, name).run
    found = courses(run, range(len(run.load)))
    end = max(course.end for course in found.values())
    idle = set(idle_columns(run, 0, end))
    for id, row in enumerate(rows_of(run)):
        cells = "".join(cell for place, cell in enumerate(row) if place not in idle)
        assert cells == found[id].text(0, end)


@every_policy
@for_every_seed(6)
def test_in_idle_time_those_who_have_come_and_have_no_seat_wait(name: str, seed: int) -> None:
    run = case(seed, name).run
    rows = rows_of(run)
    starts, steps = run.steps()["start_s"], steps_of(run)
    jumps = sorted(tick for tick in set(run.log.jumps) if tick < len(steps))
    for place, tick in zip(idle_columns(run, 0, len(steps)), jumps, strict=True):
        gone = sum(len(step.finished) + len(step.aborted) for step in steps[:tick])
        running = steps[tick - 1].running if tick else 0
        come = int((run.load.arrival < starts[tick]).sum())
        assert [row[place] for row in rows].count("~") == come - gone - running


@for_every_seed(6)
def test_a_window_is_a_part_of_the_whole(seed: int) -> None:
    run = case(seed, "dynamic").run
    whole, end = rows_of(run), len(steps_of(run))
    first = end // 3
    idle = idle_columns(run, 0, end)
    skipped = first + sum(1 for tick in set(run.log.jumps) if tick < first)
    for all_cells, cells in zip(whole, rows_of(run, first=first, steps=end - first), strict=True):
        assert cells == all_cells[skipped:].ljust(len(cells))
    assert len(whole[0]) <= end + len(idle)


@pytest.mark.parametrize("scale", [2, 7])
@for_every_seed(6)
def test_a_character_of_many_steps_shows_a_prefill_or_what_is_most_frequent(scale: int, seed: int) -> None:
    run = case(seed, "orca").run
    columns = panels({"p": run}, Window(ids=range(len(run.load)), width=WIDE, scale=scale))[0].rows
    for one, (_, cells) in zip(rows_of(run), columns, strict=True):
        whole = iter(one)
        edges = idle_columns(run, 0, len(steps_of(run)))
        for cell, part in zip(cells, parts(len(one), edges, scale), strict=True):
            steps = "".join(next(whole) for _ in range(part))
            there = steps.replace(" ", "")
            assert cell == "P" if "P" in steps else steps.count(cell) == max(map(steps.count, there or " "))


def parts(length: int, idle: list[int], scale: int) -> list[int]:
    """How many columns of one step each column of `scale` steps stands for."""
    found, at = [], 0
    for edge in [*idle, length]:
        while at < edge:
            found.append(min(scale, edge - at))
            at += found[-1]
        if edge < length:
            found.append(1)
            at += 1
    return found


def compared(load: Workload) -> bw.Runs:
    policies = {"static": bw.static(4), "dynamic": bw.dynamic(), "vllm": bw.vllm()}
    return bw.compare(load, bw.Constant(0.02), bw.Limits(max_num_seqs=8), policies)


@pytest.mark.parametrize("width", [40, 80, 133])
def test_lines_fit_the_width_and_all_policies_have_one_scale(width: int) -> None:
    found = panels(compared(chat(12)), Window(ids=range(12), width=width))
    assert all(len(line) <= width for panel in found for _, *lines in [panel.lines()] for line in lines)
    scales = {panel.title.split("1 character = ")[1] for panel in found}
    assert len(found) == 3 and len(scales) == 1
    assert all(len(line) <= width for line in legend(found, width) if "   " in line)


def test_the_axis_says_when_its_columns_begin() -> None:
    runs = compared(Workload.from_columns([0.0, 0.0, 0.0], [4, 4, 4], [1, 30, 5]))
    text = draw({"vllm": runs["vllm"]}, Window(ids=[0, 1, 2]))
    title, step, seconds, *rows = text.splitlines()[:6]
    assert title == "vllm: steps 0 to 30 of 31, 1 character = 1 step"
    assert step.split() == ["step", "0", "10", "20", "30"]
    assert seconds.split() == ["seconds", "0.000", "0.200", "0.400", "0.600"]
    assert [row.split(maxsplit=2)[2] for row in rows] == ["Pe", "P" + "-" * 29 + "e", "P----e"]
    assert step.index("10") == seconds.index("0.200") == rows[1].index("P") + 10


def test_idle_time_is_one_column_and_its_seconds_are_where_it_begins() -> None:
    load = Workload.from_columns([0.0, 3.0], [4, 4], [3, 2])
    run = bw.compare(load, bw.Constant(0.5), policies={"s": bw.static(2)})["s"]
    lines = draw({"s": run}, Window(ids=[0, 1])).splitlines()
    assert lines[2].split() == ["seconds", "0.000"]
    assert [line.split()[-1] for line in lines[3:5]] == ["~P--", "P-x"]
    assert "~ waits while nothing runs" in lines[-1]


def test_a_timeline_begins_with_the_first_of_its_requests_and_the_idle_time_before() -> None:
    load = Workload.from_columns([0.0, 9.0, 9.25], [4, 4, 4], [3, 2, 2])
    runs = bw.compare(
        load, bw.Constant(0.5), policies={"v": bw.vllm(async_scheduling=False), "s": bw.static(2)}
    )
    late = [panel.lines() for panel in panels(runs, Window(ids=[1, 2], width=60))]
    assert [lines[0].split(",")[0] for lines in late] == ["v: steps 3 to 5 of 6", "s: steps 0 to 4 of 5"]
    assert [line.split()[-1] for line in late[0][3:]] == ["P-", "P-"] and late[0][2].split()[1] == "1.500"
    assert [line.split()[-1] for line in late[1][3:]] == ["P-x", "..P-"] and late[1][2].split()[1] == "0.000"


def test_rejected_requests_and_cut_windows_are_said() -> None:
    load = Workload.from_columns([0.0, 0.0], [4, 400], [100, 9])
    limits = bw.Limits(max_model_len=200)
    run = bw.compare(load, bw.Constant(0.5), limits, policies={"v": bw.vllm()})["v"]
    lines = draw({"v": run}, Window(ids=[0, 1], scale=1, width=50)).splitlines()
    assert re.search("cut at the right, before step [0-9]+$", lines[0])
    assert lines[4] == "1  400+9  rejected"
    assert "held" not in lines[-1] and "padding" not in lines[-1]


def test_colours_change_no_character_and_every_character_has_one() -> None:
    found = panels(compared(chat(12)), Window(ids=range(12), width=90))
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        for panel in found:
            console.print(panel.styled(), soft_wrap=True)
    printed = [line.rstrip() for line in capture.get().splitlines()]
    assert printed == [line for panel in found for line in panel.lines()]
    assert STYLES.keys() == LEGEND.keys()


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ({"ids": []}, "requests is 0; give at least 1"),
        ({"ids": [0], "steps": 0}, "steps is 0; give at least 1"),
        ({"ids": [0], "scale": 0}, "scale is 0; give at least 1"),
        ({"ids": [0], "first": -1}, "first step is -1; give at least 0"),
        ({"ids": [0], "first": 10**6}, "has [0-9]+ steps, but the first one to draw is 1000000"),
        ({"ids": [12]}, "request 12 is not in chat; give ids of 0 to 11"),
    ],
)
def test_a_window_that_is_nowhere_is_refused(window: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        draw(compared(chat(12)), Window(**window))  # type: ignore[arg-type]


def test_a_long_run_is_drawn_without_its_steps_being_expanded() -> None:
    run = compared(chat(300))["vllm"]
    draw({"vllm": run}, Window(ids=range(12)))
    assert "_steps" not in vars(run) and np.isfinite(run.summary.duration)
