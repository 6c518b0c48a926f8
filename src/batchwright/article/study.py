"""All numbers of the article, computed again, beside the same workload run step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import numpy as np

from batchwright.article import formulas
from batchwright.article.claims import BATCH, CLAIMED_STATIC, OUTPUT, PROMPT, REQUESTS, STEP
from batchwright.article.counts import COUNTS, CountRow, count_row
from batchwright.article.gpus import GPUS, GpuRow, gpu_row
from batchwright.article.scheduler import Flood, SchedulerRow, flood, scheduler_rows
from batchwright.article.serve import CONTINUOUS, STATIC, closed_form_gain, over_seeds, serve, simulated_gains
from batchwright.cost import Linear
from batchwright.errors import InputError
from batchwright.interval import Interval
from batchwright.policies import Static
from batchwright.theory.expected_max import expected_max
from batchwright.theory.gain import continuous_time, saturated_gain, static_time
from batchwright.theory.lengths import Law, geometric, lognormal, uniform
from batchwright.workload import Workload
from batchwright.workload.columns import Floats

PREFILL: Final = 1e-4  # seconds per prompt token, where prefill is not free
MANY: Final = 3200  # requests that stand for "very many"
BATCHES: Final = (4, 8, 16, 32, 64)
FEWEST: Final = 10  # seeds
MOST: Final = 10_000
MORE: Final = 10  # times as many seeds for the formulas

Key = TypeVar("Key")
Result = TypeVar("Result")
Report = Callable[[float], None]  # share of the work that is done


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way to serve the workload, over seeds.  Seconds, tokens/s."""

    seconds: Interval
    output_throughput: Interval
    total_throughput: Interval


@dataclass(frozen=True, kw_only=True)
class Gains:
    """Continuous over static, as shares; each seed's own, so that both sides serve the same requests.

    formula         by the article's two formulas
    simulated       step by step, prompts free
    prefill         both pay for prompts
    prefill_padded  both pay, and static pads the prompts of a batch to its longest
    many            3200 requests, prompts free, with its closed form; `limit`: no end of requests
    """

    formula: Interval
    simulated: Interval
    prefill: Interval
    prefill_padded: Interval
    many: Interval
    many_closed_form: float
    limit: float


@dataclass(frozen=True, kw_only=True)
class LawRow:
    """Gain for many requests by a law of outputs, one for each batch size of `BATCHES`; shares."""

    law: str
    gains: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Study:
    """All that is computed.  Estimates are means over `seeds` workloads, with 95 % intervals; those of
    the two formulas over 10 times as many.

    rows           by way to serve: `static_formula`, `continuous_formula`, `static`, `continuous`,
                   `static_prefill`, `static_prefill_padded`, `continuous_prefill`
    expected       mean seconds of the two formulas and of `continuous` over all workloads, in closed form
    num_claimed    of the seeds of the formulas, those in which static reaches no more than is claimed
    claim_seconds  what the claimed tokens/s of static need for a workload of mean lengths
    most_seconds   the most that the static formula can give
    """

    seeds: int
    formula_seeds: int
    rows: dict[str, Row]
    expected: dict[str, float]
    gains: Gains
    num_claimed: int
    claim_seconds: float
    most_seconds: float
    counts: tuple[CountRow, ...]
    laws: tuple[LawRow, ...]
    gpus: tuple[GpuRow, ...]
    scheduler: tuple[SchedulerRow, ...]
    flood: Flood


Timed = dict[str, Floats]  # seconds of every seed, by way
Way = Callable[[Workload], float]
FREE: Final = Linear(STEP)
PAID: Final = Linear(STEP, prefill=PREFILL)
FORMULAS: Final[dict[str, Way]] = {
    "static_formula": lambda load: formulas.static_seconds(load.output),
    "continuous_formula": lambda load: formulas.continuous_seconds(load.output),
}
WAYS: Final[dict[str, Way]] = {
    "static": lambda load: serve(load, STATIC, FREE),
    "continuous": lambda load: serve(load, CONTINUOUS, FREE),
    "static_prefill": lambda load: serve(load, STATIC, PAID),
    "static_prefill_padded": lambda load: serve(load, Static(BATCH), PAID),
    "continuous_prefill": lambda load: serve(load, CONTINUOUS, PAID),
}


def recompute(seeds: int = 200, report: Report | None = None) -> Study:
    """Compute all of it, for `seeds` workloads (see `loads`).  Raises InputError on fewer than 10 seeds."""
    if type(seeds) is not int or not FEWEST <= seeds <= MOST:
        reason = f"at least {FEWEST}, for the intervals, and at most {MOST}"
        raise InputError(f"seeds is {seeds!r}; give a whole number of {reason}")
    said = report or _nothing
    few = max(FEWEST, seeds // 10)  # of what takes longest
    many = formulas.loads(MORE * seeds)  # formulas cost little
    loads = many[:seeds]
    timed = _timed(many, FORMULAS, lambda share: said(0.1 * share))
    timed |= _timed(loads, WAYS, lambda share: said(0.1 + 0.3 * share))
    gains = _gains(timed, max(FEWEST, seeds // 20))
    output, total = _tokens(many)
    said(0.6)
    counts = _each(COUNTS, partial(count_row, seeds=few), lambda share: said(0.6 + 0.2 * share))
    gpus = _each(GPUS, partial(gpu_row, loads=loads[:few]), lambda share: said(0.8 + 0.15 * share))
    return Study(
        seeds=seeds,
        formula_seeds=len(many),
        rows={way: _row(times, output[: len(times)], total[: len(times)]) for way, times in timed.items()},
        expected=_expected(),
        gains=gains,
        num_claimed=int((total / timed["static_formula"] <= CLAIMED_STATIC).sum()),
        claim_seconds=REQUESTS * (sum(PROMPT) + sum(OUTPUT)) / 2 / CLAIMED_STATIC,
        most_seconds=-(-REQUESTS // BATCH) * OUTPUT[1] * STEP,
        counts=counts,
        laws=tuple(_law_row(name, law) for name, law in laws().items()),
        gpus=gpus,
        scheduler=scheduler_rows(),
        flood=flood(),
    )


def laws() -> dict[str, Law]:
    """Laws of output lengths by name, uniform and with a long tail."""
    return {
        f"uniform {OUTPUT[0]} to {OUTPUT[1]}": uniform(*OUTPUT),
        f"uniform 1 to {OUTPUT[1]}": uniform(1, OUTPUT[1]),
        "geometric, mean 288": geometric(288),
        f"geometric, mean 288, cut at {OUTPUT[1]}": geometric(288, OUTPUT[1]),
        "lognormal, mean 288, sigma 0.3": lognormal(288, 0.3),
        "lognormal, mean 288, sigma 0.5": lognormal(288, 0.5),
        "lognormal, mean 288, sigma 0.8": lognormal(288, 0.8),
        "lognormal, mean 288, sigma 1, cut at 1024": lognormal(288, 1.0, 1024),
    }


def _each(keys: tuple[Key, ...], make: Callable[[Key], Result], report: Report) -> tuple[Result, ...]:
    """One result for each key, with a report after each."""
    found = []
    for i, key in enumerate(keys):
        found.append(make(key))
        report((i + 1) / len(keys))
    return tuple(found)


def _timed(loads: list[Workload], ways: Mapping[str, Way], report: Report) -> Timed:
    """The seconds of every way on every workload."""
    found: Timed = {way: np.empty(len(loads)) for way in ways}
    for i, load in enumerate(loads):
        for way, seconds in ways.items():
            found[way][i] = seconds(load)
        report((i + 1) / len(loads))
    return found


def _tokens(loads: list[Workload]) -> tuple[Floats, Floats]:
    """Output tokens, and prompt and output tokens, of every workload."""
    output = np.array([load.output.sum() for load in loads], np.float64)
    return output, output + np.array([load.prompt.sum() for load in loads])


def _row(seconds: Floats, output: Floats, total: Floats) -> Row:
    return Row(
        seconds=over_seeds(seconds),
        output_throughput=over_seeds(output / seconds),
        total_throughput=over_seeds(total / seconds),
    )


def _gains(timed: Timed, seeds: int) -> Gains:
    return Gains(
        formula=over_seeds(timed["static_formula"] / timed["continuous_formula"] - 1),
        simulated=over_seeds(timed["static"] / timed["continuous"] - 1),
        prefill=over_seeds(timed["static_prefill"] / timed["continuous_prefill"] - 1),
        prefill_padded=over_seeds(timed["static_prefill_padded"] / timed["continuous_prefill"] - 1),
        many=over_seeds(simulated_gains(MANY, seeds)),
        many_closed_form=closed_form_gain(MANY),
        limit=saturated_gain(uniform(*OUTPUT), BATCH),
    )


def _expected() -> dict[str, float]:
    law = uniform(*OUTPUT)
    return {
        "static_formula": static_time(law, REQUESTS, BATCH, STEP),
        "continuous_formula": STEP * expected_max(law, REQUESTS) * max(REQUESTS / BATCH, 1),
        "continuous": continuous_time(law, REQUESTS, BATCH, STEP),
    }


def _law_row(name: str, law: Law) -> LawRow:
    return LawRow(law=name, gains=tuple(saturated_gain(law, batch) for batch in BATCHES))


def _nothing(share: float) -> None:
    pass
