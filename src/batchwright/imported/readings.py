"""What one scrape says in our words, and what several say together."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from math import inf, nan
from typing import Final

from batchwright.imported.arrays import BadValue
from batchwright.imported.engine_metrics import EngineMetrics, Names
from batchwright.imported.histogram import Histogram
from batchwright.imported.scrapes import Sample, Scrape
from batchwright.workload.cells import shown

Value = str | int | float | bool
RANKS: Final = ("tp_rank", "pp_rank")
FAILED: Final = ("abort", "error")


class Reading:
    """One scrape of one model.  `seconds`: since 1970; nan: not told."""

    def __init__(self, scrape: Scrape, engine: EngineMetrics, model: str | None) -> None:
        self.scrape = scrape
        self.engine = engine
        self.model = model
        self.seconds = nan if scrape.seconds is None else scrape.seconds
        self.counters = dict(self._counters())
        self.gauges = {name: self._gauge(name, found) for name, found in self._named(engine.gauges)}
        self.histograms = {
            name: self._histogram(found) for name, found in self._named(engine.histograms, "_count")
        }
        self.about = dict(self._about())

    def _named(self, names: Names, ending: str = "") -> Iterator[tuple[str, str]]:
        """Our word, and the name under which the scrape has it."""
        for word, there in names.items():
            for name in there:
                if self._samples(f"{self.engine.prefix}{name}{ending}"):
                    yield word, f"{self.engine.prefix}{name}"
                    break

    def _samples(self, name: str) -> list[Sample]:
        """Of the model, each thing once: all priorities together, and one of the ranks that share it."""
        found = [
            sample
            for sample in self.scrape.of(name)
            if sample.labels.get("model_name", self.model) == self.model
            and sample.labels.get("priority", "") == ""
        ]
        if not any(RANKS[0] in sample.labels for sample in found):
            return found
        return list({_shared(sample): sample for sample in sorted(found, key=_rank, reverse=True)}.values())

    def _counters(self) -> Iterator[tuple[str, float]]:
        """Requests that were aborted, or failed, are no completed ones."""
        for word, name in self._named(self.engine.counters):
            samples, amounts = self._samples(name), self._amounts(name)
            failed = [sample.value for sample in samples if sample.labels.get("finished_reason") in FAILED]
            yield word, sum(amounts) - sum(failed)
            if failed:
                yield "num_failed", sum(failed)

    def _values(self, name: str) -> list[float]:
        return [sample.value for sample in self._samples(name)]

    def _amounts(self, name: str) -> list[float]:
        """Raises BadValue on what has never been counted: less than 0, infinite or nan."""
        values = self._values(name)
        wrong = [value for value in values if not 0 <= value < inf]
        if wrong:
            raise BadValue(f"{name} is {wrong[0]:g}")
        return values

    def _gauge(self, word: str, name: str) -> float:
        """Requests add up over engines, shares do not."""
        values = self._values(name)
        return sum(values) / len(values) if word == "kv_usage" else sum(values)

    def _histogram(self, name: str) -> Histogram:
        buckets: dict[float, float] = {}
        samples, amounts = self._samples(f"{name}_bucket"), self._amounts(f"{name}_bucket")
        for sample, amount in zip(samples, amounts, strict=True):
            limit = _limit(name, sample)
            buckets[limit] = buckets.get(limit, 0.0) + amount
        return Histogram(sum(self._amounts(f"{name}_sum")), sum(self._amounts(f"{name}_count")), buckets)

    def _about(self) -> Iterator[tuple[str, Value]]:
        if self.model is not None:
            yield "model", self.model
        for word, name in self._named(self.engine.facts):
            yield word, int(self._amounts(name)[0])
        for sample in self._samples(f"{self.engine.prefix}{self.engine.info}")[:1]:
            for label, word in self.engine.labels.items():
                value = sample.labels.get(label, "None")
                if value not in ("None", "auto", ""):
                    yield word, _value(value)


def _limit(name: str, sample: Sample) -> float:
    """The upper limit of a bucket.  Raises BadValue on what is none."""
    told = "" if sample.limit is None else sample.limit
    try:
        found = float(told)
    except ValueError:
        found = nan
    if found != found:
        raise BadValue(f"a bucket of {name} has the limit {shown(told)}")
    return found


def _shared(sample: Sample) -> tuple[object, ...]:
    """What is the same for all ranks that share the work of a sample."""
    return sample.limit, *sorted(pair for pair in sample.labels.items() if pair[0] not in RANKS)


def _rank(sample: Sample) -> list[int]:
    told = [sample.labels.get(name, "") for name in RANKS]
    return [int(number) if number.isdigit() else 0 for number in told]


def _value(text: str) -> Value:
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


class Window:
    """What came between the first reading and the last; of one, since the server started."""

    def __init__(self, readings: list[Reading]) -> None:
        self.readings = readings
        first, last = readings[0], readings[-1]
        is_one = len(readings) == 1
        self.seconds = nan if is_one else last.seconds - first.seconds
        self.counts = {
            name: value - (0.0 if is_one else first.counters.get(name, 0.0))
            for name, value in last.counters.items()
        }
        self.histograms = {
            name: found if is_one or name not in first.histograms else found.minus(first.histograms[name])
            for name, found in last.histograms.items()
        }

    @cached_property
    def is_quiet(self) -> bool:
        """Does nobody run or wait at its ends, so that what came has gone?"""
        ends = self.readings[-1:] if len(self.readings) == 1 else [self.readings[0], self.readings[-1]]
        return all(
            reading.gauges.get("running", 1.0) == 0 and reading.gauges.get("waiting", 0.0) == 0
            for reading in ends
        )

    def mean(self, name: str) -> float:
        """Of a histogram; nan if it is not there, or empty."""
        return self.histograms[name].mean if name in self.histograms else nan
