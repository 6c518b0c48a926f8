"""The same runs from the timings of their requests alone: no layer was measured, three parameters are fitted.

Fitted on requests 1 to 150, tested on 151 to 300; all are simulated, as they share the server.  A
parameter that the timings do not determine stays at its prior.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from batchwright.accuracy.serving import MODEL, SOURCE, WORKLOAD
from batchwright.accuracy.study import Row, Study
from batchwright.calibration.requests import RequestsFit, fit_requests
from batchwright.calibration.served import Server, served
from batchwright.cost import Roofline
from batchwright.imported import read
from batchwright.limits import Limits
from batchwright.policies import Vllm
from batchwright.workload import Workload

HELD_OUT: Final = 0.5
BOUNDS: Final = {"ttft_s": ("TTFT", float("inf")), "tpot_s": ("TPOT", 0.03), "e2e_s": ("E2E", 0.05)}


def of_card(data: Path, card: str, gpu: str, blocks: int | None) -> Study:
    """`gpu`: our name of the card.  `blocks`: KV blocks that requests can use; None: as its memory has."""
    root = data / "vllm_gpu"
    measured = read(root / card / MODEL)
    of_file = served(measured, Workload.open(root / WORKLOAD))
    cost = Roofline(gpu, "llama-3.1-8b")
    told = measured.about
    seqs, tokens = int(told["max_num_seqs"]), int(told["max_num_batched_tokens"])
    limits = Limits(
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        num_kv_blocks=blocks or cost.num_kv_blocks(0.9, 16, tokens, seqs),
    )
    server = Server(policy=Vllm(version="0.19"), limits=limits, cost=cost)
    fit = fit_requests(of_file, server, HELD_OUT, lambda simulations: None)
    rest = of_file.rest(fit.num_fitted)
    return Study(
        title=f"vLLM 0.19, {MODEL} on {gpu}, from the timings of requests 1 to {fit.num_fitted} alone",
        source=SOURCE,
        calibration=_words(fit),
        rows=tuple(_rows(fit, rest)),
        wrong=("prompts and contexts of the two halves are alike, so this is no test of other loads",),
    )


def _words(fit: RequestsFit) -> str:
    """What was found, and what was not."""
    parts = [
        f"{one.parameter.name} {one.value:.3g}"
        + (" (not determined: its prior)" if one.is_kept else f" (95 %: {one.low:.3g} to {one.high:.3g})")
        for one in fit.found.estimates
    ]
    return f"{', '.join(parts)}, fitted on requests 1 to {fit.num_fitted}"


def _rows(fit: RequestsFit, rest: Mapping[str, np.ndarray]) -> list[Row]:
    """The means of the requests that were held out."""
    errors = fit.held_out or {}
    found = []
    for name, (title, bound) in BOUNDS.items():
        mean = float(np.nanmean(rest[name]))
        predicted = mean * (1 + errors[name]["mean"])
        found.append(Row(what=f"mean {title}", unit="s", predicted=predicted, measured=mean, bound=bound))
    return found
