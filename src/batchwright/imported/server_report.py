"""What a server's own files say in sum, as text and table: memory, steps, state, histograms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from batchwright.figures import NOT_APPLICABLE, amount, count, seconds, seconds_unit, share, three
from batchwright.imported.histogram import SHARES
from batchwright.imported.result import METRICS, Imported
from batchwright.metrics import Numbers
from batchwright.plain_table import plain_table

if TYPE_CHECKING:
    from rich.table import Table

TITLES: Final = {
    **METRICS, "queue_s": "queue", "prefill_s": "prefill", "decode_s": "decode", "inference_s": "inference",
}  # fmt: skip
_MEMORY: Final = {
    "gpu_gib": "of the GPU", "weights_gib": "weights", "activation_peak_gib": "activation peak",
    "cuda_graph_gib": "CUDA graphs", "cuda_graph_estimate_gib": "CUDA graphs as estimated",
    "kv_gib": "KV cache",
}  # fmt: skip


def lines(found: Imported) -> Iterator[str]:
    """Memory, steps and state in words; nothing of what the file does not have."""
    totals = found.totals
    memory = [f"{amount(totals[key])} GiB {what}" for key, what in _MEMORY.items() if key in totals]
    if memory:
        yield f"memory: {', '.join(memory)}"
    if "kv_tokens" in totals:
        times = totals.get("max_concurrency")
        full = "" if times is None else f", {amount(times)} requests of the greatest length"
        yield f"KV cache: {count(totals['kv_tokens'])} tokens{full}"
    if "step_seconds_s" in totals:
        took = seconds(totals["step_seconds_s"])
        yield f"steps: {count(totals['num_steps'])} that take {took}{_tokens(found)}"
    if found.series is not None and found.requests is None:
        yield from _state(found)
    if "preemptions" in totals:
        yield f"preemptions: {count(totals['preemptions'])}"


def _tokens(found: Imported) -> str:
    known = {"prefill_tokens": "prompt", "decode_tokens": "decode"}
    parts = [
        f"{count(found.totals[key])} {what} tokens" for key, what in known.items() if key in found.totals
    ]
    return f", {' and '.join(parts)}" if parts else ""


def _state(found: Imported) -> Iterator[str]:
    series = found.series or {}
    for name in ("running", "waiting"):
        if name in series and len(series[name]):
            mean, most = _mean_and_most(series[name])
            yield f"{name}: {amount(mean)} on average, at most {count(most)}"
    if "kv_usage" in series and len(series["kv_usage"]):
        mean, most = _mean_and_most(series["kv_usage"])
        yield f"KV cache taken: {share(mean)} on average, at most {share(most)}"


def _mean_and_most(values: Numbers) -> tuple[float, float]:
    """nan if no value is known."""
    known = values[~np.isnan(values)]
    return (float(known.mean()), float(known.max())) if len(known) else (np.nan, np.nan)


def table(found: Imported) -> Table | None:
    """A row per histogram of times: its mean, and between which limits its percentiles are; None if none."""
    rows = [name for name in TITLES if f"{name}.mean" in found.totals]
    if not rows:
        return None
    result = plain_table()
    for title in ("", "mean", *(key.upper() for key in SHARES)):
        result.add_column(title, justify="right" if title else "left")
    for name in rows:
        cells = [_between(found, f"{name}.{key}") for key in SHARES]
        result.add_row(TITLES[name], seconds(found.totals[f"{name}.mean"]), *cells)
    return result


def _between(found: Imported, name: str) -> str:
    least, most = found.totals.get(f"{name}.least"), found.totals.get(f"{name}.most")
    if least is None:  # its buckets are broken, which a finding says
        return NOT_APPLICABLE
    if most is None:
        return f"over {seconds(least)}"
    size, behind = seconds_unit(most)
    return (
        f"up to {seconds(most)}" if least == 0 else f"{three(least / size)} to {three(most / size)}{behind}"
    )
