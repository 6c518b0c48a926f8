"""What must hold between the files of a bench folder.

queued <= scheduled <= first token <= end           running <= max_num_seqs
running + waiting on average = sum of E2E / duration (Little)
throughput x interval = tokens of the requests
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

import numpy as np

from batchwright.imported.result import Columns, Finding
from batchwright.metrics import Numbers

SAMPLED: Final = 0.05  # relative, between an average over samples and one over time
FEW: Final = 20  # samples: fewer say little of an average over time
NEAR: Final = 0.01  # relative, between tokens and tokens


def checks(
    requests: Columns, apart: Numbers, series: Columns | None, facts: Mapping[str, Any]
) -> Iterator[Finding]:
    """All that is odd or wrong.  `apart`: seconds that each took longer than the quickest to the engine."""
    yield from _clocks(apart)
    yield from _times(requests)
    if series is not None:
        yield from _state(series, facts)
        yield from _little(requests, series)
        yield from _tokens(requests, series)


def _clocks(apart: Numbers) -> Iterator[Finding]:
    """How far the two clocks are from one distance."""
    known = apart[~np.isnan(apart)]
    if len(known):
        yield Finding(
            text=f"requests reach the engine {known.mean():.3g} s after arrival_time on average, "
            f"{known.max():.3g} s "
            "at most, the quickest counted as 0: TTFT and E2E, from when it has them, do not count that",
            is_wrong=False,
        )


def _times(requests: Columns) -> Iterator[Finding]:
    order = ("queued_s", "scheduled_s", "first_token_s", "finished_s")
    with np.errstate(invalid="ignore"):
        for before, after in pairwise(order):
            wrong = int((requests[after] < requests[before]).sum())
            if wrong:
                yield Finding(
                    text=f"{wrong} of {len(requests[after])} requests have {after} before {before}",
                    is_wrong=True,
                )
    failed = int((requests["is_completed"] == 0).sum())
    if failed:
        yield Finding(
            text=f"{failed} of {len(requests['arrival_s'])} requests did not finish", is_wrong=False
        )


def _state(series: Columns, facts: Mapping[str, Any]) -> Iterator[Finding]:
    if "kv_usage" not in series:
        text = "kv_cache_pct is 0 throughout, though requests run: it was not recorded, and is left out"
        yield Finding(text=text, is_wrong=False)
    most = facts.get("max_num_seqs")
    if not isinstance(most, int):
        return
    if series["running"].max() > most:
        yield Finding(
            text=f"{series['running'].max()} requests run at once, over max_num_seqs {most}", is_wrong=True
        )
    if (series["running"] == most).any():
        share = float((series["running"] == most).mean())
        yield Finding(text=f"all {most} seats are taken in {share:.0%} of the samples", is_wrong=False)


def _little(requests: Columns, series: Columns) -> Iterator[Finding]:
    """Requests in the engine by the samples, against those by their times."""
    done = requests["is_completed"] == 1
    if len(series["running"]) < FEW or not done.all():
        return
    seconds = float(requests["finished_s"].max() - requests["queued_s"].min())
    seen = float((series["running"] + series["waiting"]).mean())
    expected = float(requests["e2e_s"].sum()) / seconds
    if abs(seen - expected) > SAMPLED * expected:
        text = (
            f"Little's law: {seen:.3g} requests are in the engine on average over the samples, but the sum "
            f"of E2E over the duration is {expected:.3g}"
        )
        yield Finding(text=text, is_wrong=True)


def _tokens(requests: Columns, series: Columns) -> Iterator[Finding]:
    """Tokens by the samples, which are even, against those of the requests."""
    times = series["time_s"]
    if len(times) < FEW or (requests["is_completed"] == 0).any():
        return
    interval = float(np.median(np.diff(times)))
    for rate, tokens in (("prompt_tokens_per_s", "prompt_tokens"), ("output_tokens_per_s", "output_tokens")):
        sampled, counted = float(series[rate].sum()) * interval, float(requests[tokens].sum())
        if abs(sampled - counted) > NEAR * counted:
            words = tokens.replace("_", " ")
            text = f"the samples tell of {sampled:.0f} {words}, the requests have {counted:.0f}"
            yield Finding(text=text, is_wrong=tokens == "output_tokens")
