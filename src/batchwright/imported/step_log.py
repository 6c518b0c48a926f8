"""The CSV that our stat logger for vLLM writes: a row per step, in the columns of a run folder.

A step lasts from the end of the one before, or the arrival at an idle engine, to when the front end
saw its end: model, scheduler and output of the tokens.  Prefill tokens and decodes are vLLM's context
tokens and generation requests, so a request that was preempted counts as a decode while it computes again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from batchwright.imported.numbers_table import columns, titles_of
from batchwright.imported.result import Columns, Finding, Imported
from batchwright.imported.source import Source

FORM: Final = "step log of vLLM by batchwright"
TITLES: Final = (
    "step", "start_s", "end_s", "prefill_tokens", "num_decodes", "running", "waiting", "preempted",
    "finished", "free_blocks", "num_chunks",
)  # fmt: skip
RESOLUTION: Final = 1e-4  # seconds, of the times in such logs
CONVENTIONS: Final = (
    "a step lasts until the front end sees its end, scheduling included",
    "a request that was preempted is one decode, and not prefill_tokens, while it computes again",
)


def matches(source: Source) -> bool:
    """Has its header all columns of the log, and is it not of a run folder, which has a policy?"""
    titles = titles_of(source)
    return titles >= set(TITLES) and "policy" not in titles


def read(source: Source) -> Imported:
    """Raises InputError on a row that is cut, or is no step."""
    found = columns(source, TITLES, "a step log")
    start, end = found["start_s"], found["end_s"]
    return Imported(
        file=source.name,
        form=FORM,
        conventions=CONVENTIONS,
        findings=(*step_findings(found), *_empty(found)),
        about={"engine": "vllm"},
        steps=found,
        series={"time_s": end, "running": found["running"], "waiting": found["waiting"]},
        totals={
            "num_steps": float(len(end)),
            "step_seconds_s": float((end - start).sum()),
            "duration_s": float(end[-1] - start[0]),
            "preemptions": float(found["preempted"].sum()),
            "finished": float(found["finished"].sum()),
            "prefill_tokens": float(found["prefill_tokens"].sum()),
        },
    )


def step_findings(steps: Columns) -> Iterator[Finding]:
    """What cannot be in a log of steps that follow each other."""
    start, end = steps["start_s"], steps["end_s"]
    backwards = int((end < start).sum())
    if backwards:
        yield Finding(text=f"{backwards} of {len(end)} steps end before they start", is_wrong=True)
    overlaps = np.maximum(end[:-1] - start[1:], 0.0)
    if (overlaps > RESOLUTION).any():
        yield Finding(
            text=f"{int((overlaps > RESOLUTION).sum())} of {len(end)} steps start before the one "
            "before has ended, "
            f"by up to {overlaps.max():.3g} s: several engines, or runs, are in one log",
            is_wrong=True,
        )
    if "step" in steps and len(end) > 1:
        lacking = int(steps["step"][-1] - steps["step"][0] + 1 - len(end))
        if lacking > 0:
            yield Finding(text=f"{lacking} steps are missing, by their numbers", is_wrong=False)


def _empty(steps: Columns) -> Iterator[Finding]:
    """vLLM tells of no step without work."""
    empty = int(((steps["prefill_tokens"] == 0) & (steps["num_decodes"] == 0)).sum())
    if empty:
        yield Finding(text=f"{empty} of {len(steps['start_s'])} steps compute nothing", is_wrong=False)
