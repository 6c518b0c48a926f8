"""The /metrics of vLLM or SGLang, scraped once or several times.

Of several scrapes all counts are those between the first and the last; of one, since the server started.
Engines of one server are added up.  A histogram gives a mean, and limits of percentiles, never the
percentile itself:  `ttft_s.p99.least` and `ttft_s.p99.most`.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite, isnan
from typing import Final

import numpy as np

from batchwright.errors import InputError
from batchwright.imported import scrapes
from batchwright.imported.choose import chosen
from batchwright.imported.engine_metrics import ENGINES, EngineMetrics
from batchwright.imported.histogram import SHARES, Histogram
from batchwright.imported.metrics_checks import checks
from batchwright.imported.readings import Reading, Window
from batchwright.imported.result import Finding, Imported
from batchwright.imported.scrapes import Scrape
from batchwright.imported.source import Source
from batchwright.metrics import Numbers

matches = scrapes.matches
FORM: Final = {"vllm": "/metrics of vLLM, Prometheus text", "sglang": "/metrics of SGLang, Prometheus text"}


def read(source: Source) -> Imported:
    """Raises InputError on text that is not whole, on metrics of both engines, or of several models."""
    taken = scrapes.scrapes(source)
    engine = _engine(source, taken)
    readings = _readings(source, taken, engine)
    kept, restarts = _since_restart(readings)
    window = Window(kept)
    return Imported(
        file=source.name,
        form=FORM[engine.name],
        conventions=(*engine.conventions, *_span(window)),
        findings=(*_restarted(restarts, len(kept)), *checks(window)),
        about={"engine": engine.name, **kept[-1].about},
        series=_series(kept) if len(kept) > 1 else None,
        totals=_totals(window),
    )


def _engine(source: Source, taken: list[Scrape]) -> EngineMetrics:
    found = [
        engine
        for engine in ENGINES
        if any(name.startswith(engine.prefix) for scrape in taken for name in scrape.samples)
    ]
    if len(found) == 1:
        return found[0]
    names = " and ".join(engine.name for engine in found) or "no engine"
    raise InputError(f"{source.name}: has metrics of {names}; give those of one server of vLLM or SGLang")


def _readings(source: Source, taken: list[Scrape], engine: EngineMetrics) -> list[Reading]:
    """What each scrape says of one model."""
    models = sorted(
        {
            sample.labels["model_name"]
            for scrape in taken
            for samples in scrape.samples.values()
            for sample in samples
            if "model_name" in sample.labels
        }
    )
    model = models[chosen(source, models)] if models else None
    readings = [Reading(scrape, engine, model) for scrape in taken]
    kept = [reading for reading in readings if reading.counters or reading.histograms]
    if not kept:
        raise InputError(f"{source.name}: has no counter of {engine.name}; give the whole answer of /metrics")
    return kept


def _since_restart(readings: list[Reading]) -> tuple[list[Reading], int]:
    """The scrapes since the server started last, and how often it did in between."""
    start = restarts = 0
    for place in range(1, len(readings)):
        before, now = readings[place - 1].counters, readings[place].counters
        if any(now.get(name, value) < value for name, value in before.items()):
            start, restarts = place, restarts + 1
    return readings[start:], restarts


def _restarted(restarts: int, kept: int) -> Iterator[Finding]:
    if restarts:
        text = (
            f"counters fall {restarts} times: the server was started again; the last {kept} scrapes are read"
        )
        yield Finding(text=text, is_wrong=False)


def _span(window: Window) -> Iterator[str]:
    if len(window.readings) == 1:
        yield "one scrape: all counts are since the server started"
        return
    seconds = (
        "an unknown time, for no scrape tells its own" if isnan(window.seconds) else f"{window.seconds:.4g} s"
    )
    yield (
        f"{len(window.readings)} scrapes: all counts are those between the first and the last, over {seconds}"
    )


def _totals(window: Window) -> dict[str, float]:
    found = dict(window.counts)
    if window.seconds > 0:
        found["duration_s"] = window.seconds
        if "output_tokens" in found:
            found["output_tokens_per_s"] = found["output_tokens"] / window.seconds
        if "num_completed" in found:
            found["requests_per_s"] = found["num_completed"] / window.seconds
    for name, histogram in window.histograms.items():
        if histogram.count > 0:
            found |= _spread(name, histogram)
    if "tokens_of_step" in window.histograms:
        found["num_steps"] = window.histograms["tokens_of_step"].count
    return found


def _spread(name: str, histogram: Histogram) -> dict[str, float]:
    """Its mean, and between what its percentiles lie."""
    found = {f"{name}.mean": histogram.mean}
    for key, share in SHARES.items():
        least, most = histogram.between(share)
        if isfinite(least):
            found[f"{name}.{key}.least"] = least
        if isfinite(most):
            found[f"{name}.{key}.most"] = most
    return found


def _series(readings: list[Reading]) -> dict[str, Numbers]:
    """A row per scrape; counts from the first one on.  `time_s` is nan where no scrape tells its time."""
    origin = readings[0].seconds
    found = {"time_s": np.array([reading.seconds - origin for reading in readings])}
    for name in readings[0].gauges:
        found[name] = np.array([reading.gauges.get(name, np.nan) for reading in readings])
    for name, first in readings[0].counters.items():
        found[name] = np.array([reading.counters.get(name, np.nan) - first for reading in readings])
    return found
