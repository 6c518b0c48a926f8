"""A run under the key names of `vllm bench serve --save-result --save-detailed`.

The conventions are vLLM's, for those who have tools for its files:

    duration    from the first request sent to the last reply, refused requests included
    ttft        first token - sent; `ttfts` in seconds, `*_ttft_ms` in milliseconds
    tpot        (last token - first) / (output - 1), only of outputs of 2 tokens or more
    itl         all gaps between successive tokens of all requests, in one list
    e2el        last token - sent
    std         of the whole population; percentiles interpolate linearly
    request_goodput   requests/s that met every goal; a lone token counts as TPOT 0
    max_output_tokens_per_s   the most in one second, counted in seconds from the first request
    max_concurrent_requests   the most in flight at once (older versions count whole seconds)

Statistics and counts of tokens are those of completed requests.  What has no value is null,
where vLLM writes 0: clients of a batch that does not stream have neither TPOT nor ITL.

Source: vLLM, `vllm/benchmarks/serve.py` (`calculate_metrics`, `main_async`) and
`lib/endpoint_request_func.py`; `rtfx` and what speculative decoding adds are left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import ceil
from typing import Any, Final

import numpy as np

from batchwright.errors import InputError, nearest
from batchwright.export.exported import Exported
from batchwright.metrics import Numbers
from batchwright.run import Run
from batchwright.run.ticks import token_times

GOALS: Final = {"ttft": "ttft_s", "tpot": "tpot_s", "e2el": "e2e_s"}
BACKEND: Final = "batchwright"
NANOSECONDS: Final = 9  # decimals of seconds


def vllm_bench_result(
    run: Run, *, model: str = "", goodput: Mapping[str, float] | None = None, is_detailed: bool = True
) -> Exported:
    """One JSON object, as vLLM writes it.

    `goodput`: milliseconds by ttft, tpot or e2el.  `is_detailed`: with one entry per request.
    Raises InputError on another goal.
    """
    found = Columns(run)
    result = {**_setup(run, model), **_counts(found), **_goodput(found, goodput or {}), **_rates(found)}
    if is_detailed:
        result |= found.details()
    for name, values in found.samples().items():
        result |= _statistics(name, values)
    return Exported(text=json.dumps(result) + "\n", notes=tuple(_notes(run, is_detailed)))


class Columns:
    """What the file is made of: times in seconds, per request."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.of = run.requests()
        self.is_done = ~np.isnan(self.of["finished_s"])
        self.tokens = token_times(run) if run.is_streamed else _at_once(self.of)
        last = [float(np.nanmax(self.of[name], initial=0.0)) for name in ("finished_s", "arrival_s")]
        self.duration = max(last)

    def done(self, name: str) -> Numbers:
        """A column of the completed requests."""
        values: Numbers = self.of[name][self.is_done]
        return values

    def gaps(self, id: int) -> Numbers:
        """Seconds between the tokens of a request; none where it did not complete."""
        return np.diff(self.tokens[id]) if self.is_done[id] and self.run.is_streamed else np.empty(0)

    def samples(self) -> dict[str, Numbers]:
        """The values of each metric that has statistics."""
        per_token = self.done("tpot_s")
        gaps = [self.gaps(id) for id in range(len(self.is_done))]
        return {
            "ttft": self.done("ttft_s"),
            "tpot": per_token[~np.isnan(per_token)],
            "itl": np.concatenate(gaps),
            "e2el": self.done("e2e_s"),
        }

    def details(self) -> dict[str, list[Any]]:
        """One entry per request, in order of arrival."""
        ids = range(len(self.is_done))
        rejected = set(self.run.rejected)
        return {
            "input_lens": self.of["prompt_tokens"].tolist(),
            "output_lens": np.where(self.is_done, self.of["output_tokens"], 0).tolist(),
            "ttfts": np.round(np.where(self.is_done, self.of["ttft_s"], 0.0), NANOSECONDS).tolist(),
            "itls": [np.round(self.gaps(id), NANOSECONDS).tolist() for id in ids],
            "start_times": self.of["arrival_s"].tolist(),
            "generated_texts": [""] * len(ids),
            "errors": ["" if self.is_done[id] else _error(self.run, id, rejected) for id in ids],
        }


def _setup(run: Run, model: str) -> dict[str, Any]:
    rate, burstiness = _traffic(run.arrival)
    return {
        "backend": BACKEND,
        "endpoint_type": BACKEND,
        "label": run.name,
        "model_id": model,
        "num_prompts": len(run.load),
        "request_rate": rate,
        "burstiness": burstiness,
        "max_concurrency": None,
    }


def _traffic(arrival: Numbers) -> tuple[float | str, float | str]:
    """Rate and burstiness (the shape of Gamma gaps, 1 / CV^2) as vLLM would be told of them."""
    gaps = np.diff(np.sort(arrival))
    if not gaps.any():
        return "inf", 1.0
    cv = float(gaps.std() / gaps.mean())
    return 1 / float(gaps.mean()), "inf" if cv < 1e-9 else cv**-2


def _counts(found: Columns) -> dict[str, Any]:
    completed = int(found.is_done.sum())
    return {
        "duration": found.duration,
        "completed": completed,
        "failed": len(found.is_done) - completed,
        "total_input_tokens": int(found.done("prompt_tokens").sum()),
        "total_output_tokens": int(found.done("output_tokens").sum()),
    }


def _rates(found: Columns) -> dict[str, Any]:
    prompt, output = int(found.done("prompt_tokens").sum()), int(found.done("output_tokens").sum())
    return {
        "request_throughput": _per_second(int(found.is_done.sum()), found.duration),
        "output_throughput": _per_second(output, found.duration),
        "total_token_throughput": _per_second(prompt + output, found.duration),
        "max_output_tokens_per_s": _busiest_second(found),
        "max_concurrent_requests": _most_in_flight(found),
    }


def _per_second(amount: int, seconds: float) -> float | None:
    return amount / seconds if seconds > 0 else None


def _busiest_second(found: Columns) -> float:
    """The most tokens in one second, counted from the first request that completed."""
    if not found.is_done.any():
        return 0.0
    times = np.concatenate([found.tokens[id] for id in np.flatnonzero(found.is_done).tolist()])
    first = float(found.done("arrival_s").min())
    seconds = np.bincount((times - first).astype(np.int64), minlength=ceil(found.duration) + 1)
    return float(seconds.max())


def _most_in_flight(found: Columns) -> int:
    """Completed requests at once; one that ends at an instant has left when another comes."""
    times = np.concatenate((found.done("finished_s"), found.done("arrival_s")))
    changes = np.repeat([-1, 1], len(times) // 2)
    in_flight = np.cumsum(changes[np.argsort(times, kind="stable")])
    return int(in_flight.max(initial=0))


def _goodput(found: Columns, goals: Mapping[str, float]) -> dict[str, Any]:
    """Requests/s that met all `goals`; null if there are none, or one cannot apply."""
    is_good = np.ones(int(found.is_done.sum()), np.bool_)
    for name, most in goals.items():
        if name not in GOALS:
            raise InputError(f"goodput has no goal {name!r}{nearest(name, GOALS)}")
        if name == "tpot" and not found.run.is_streamed:
            return {"request_goodput": None}
        is_good &= np.nan_to_num(found.done(GOALS[name])) <= most / 1000
    good = _per_second(int(is_good.sum()), found.duration)
    return {"request_goodput": good if goals else None}


def _statistics(name: str, seconds: Numbers) -> dict[str, float | None]:
    keys = [f"{word}_{name}_ms" for word in ("mean", "median", "std", "p99")]
    if len(seconds) == 0:
        return dict.fromkeys(keys)
    values = seconds.mean(), np.median(seconds), seconds.std(), np.percentile(seconds, 99)
    return {key: float(value) * 1000 for key, value in zip(keys, values, strict=True)}


def _at_once(columns: dict[str, Numbers]) -> list[Numbers]:
    """All tokens of a request when its batch ends: what the client sees without a stream."""
    rows = zip(columns["finished_s"].tolist(), columns["output_tokens"].tolist(), strict=True)
    return [np.full(output, finished) for finished, output in rows]


def _error(run: Run, id: int, rejected: set[int]) -> str:
    if id in rejected:
        return f"prompt of {int(run.load.prompt[id])} tokens reaches max_model_len {run.limits.longest}"
    return "cancelled by the client"


def _notes(run: Run, is_detailed: bool) -> list[str]:
    notes = ["date and tokenizer_id are left out: nothing was measured"]
    if is_detailed:
        notes.append("generated_texts are empty: a simulation has lengths, but no text")
    if not run.is_streamed:
        notes.append(f"TPOT and ITL are null: {run.name} does not stream, so clients see no single token")
    return notes
