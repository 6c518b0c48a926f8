"""A flood of very short requests: what the scheduler costs beside steps that are short.

n seats, always taken; a request has o <= 32 tokens and needs E[o] steps, so that a seat begins with a
prompt in each step with probability 1 / E[o], whatever the others do: their number is binomial.  With
the device's mean seconds of a step, t, and the host's, h = base + per_running n:

    synchronous   n / (E[o] (t + h))              requests/s; h / (t + h) is lost
    asynchronous  n / ((E[o] + 1) max(t, h))      an end is seen a step late

Source: `theory.overhead`; the host's seconds, `cost.Hosted`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from batchwright.article.claims import CLAIMED_SCHEDULING, CLAIMED_SHORT, CLAIMED_STEP
from batchwright.article.scheduler import flood
from batchwright.cost import CostModel
from batchwright.edge.answer import Answer, Table
from batchwright.edge.serve import Progress, Report, check, estimates, requests_per_second, serve
from batchwright.edge.server import Server
from batchwright.edge.steps import binomial_mean, with_prompts
from batchwright.figures import amount, seconds, share
from batchwright.interval import Interval
from batchwright.theory.continuous import kv_read
from batchwright.theory.overhead import step_seconds, synchronous_loss
from batchwright.workload import Workload

RUNNING: Final = (8, 32, 64, 128, 256, 512)
PROMPT: Final = 16  # tokens
MEAN: Final = (1 + CLAIMED_SHORT) / 2  # output tokens, each of 1 to 32 alike
ROUNDS: Final = 12  # requests of a seat, at least
STEADY: Final = (0.3, 0.85)  # shares of the ends between which seats are neither in step nor empty
MOST: Final = 1 << 14  # running requests up to which a crossing is looked for
LOSS: Final = 0.1
WAYS: Final = {"alone": False, "synchronous": False, "asynchronous": True}  # is it overlapped?
UNITS: Final = {
    "host": "host_s",
    "step": "step_s",
    "alone": "alone_requests_per_s",
    "synchronous": "synchronous_requests_per_s",
    "asynchronous": "asynchronous_requests_per_s",
    "synchronous_form": "synchronous_form_requests_per_s",
    "asynchronous_form": "asynchronous_form_requests_per_s",
    "claimed_host": "claimed_host_s",
    "claimed_step": "claimed_step_s",
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """`running` seats, all taken.  Seconds of a step, requests/s simulated and by formula, shares.

    alone   requests/s of the device if scheduling cost nothing
    lost    share of it that synchronous scheduling loses, simulated; `lost_form`: by formula
    """

    running: int
    host: float
    step: float
    alone: Interval
    synchronous: Interval
    asynchronous: Interval
    lost: Interval
    lost_form: float
    synchronous_form: float
    asynchronous_form: float


@dataclass(frozen=True, kw_only=True)
class ShortFlood:
    """The whole study.  `crossing`: running requests from which on 10 % are lost; None: never.

    host_bound   running requests from which on the host is slower than the device; None: never
    worth        from which on asynchronous scheduling serves more than synchronous; None: never
    claimed...   the article's scheduling and step; `claimed_longer`: by how much steps last longer, simulated
    claimed_running  running requests at which the host takes as long as it claims
    """

    server: str
    seed: int
    repeat: int
    requests: int
    rows: tuple[Row, ...]
    crossing: int | None
    host_bound: int | None
    worth: int | None
    claimed_host: float
    claimed_step: float
    claimed_share: float
    claimed_longer: float
    claimed_running: float


def short_flood(
    server: Server | None = None,
    *,
    requests: int = 2000,
    seed: int = 0,
    repeat: int = 3,
    report: Report | None = None,
) -> ShortFlood:
    """Outputs of 1 to 32 tokens, all there at the start, `requests` at least.  Raises InputError."""
    at = server or Server()
    check(requests, repeat, seed, least=100)
    progress = Progress(report, len(RUNNING) * repeat)
    rows = tuple(_row(at, running, requests, range(seed, seed + repeat), progress) for running in RUNNING)
    host = at.cost
    lost = flood().synchronous
    return ShortFlood(
        server=str(at),
        seed=seed,
        repeat=repeat,
        requests=requests,
        rows=rows,
        crossing=_first(lambda n: lost_form(at, n) >= LOSS),
        host_bound=_first(lambda n: host_seconds(at, n) >= device_seconds(at, n, MEAN)),
        worth=_first(lambda n: rate(at, n, "asynchronous") > rate(at, n, "synchronous")),
        claimed_host=CLAIMED_SCHEDULING,
        claimed_step=CLAIMED_STEP,
        claimed_share=CLAIMED_SCHEDULING / CLAIMED_STEP,
        claimed_longer=1 / (1 - lost) - 1,
        claimed_running=(CLAIMED_SCHEDULING - host.base) / host.per_running,
    )


# --- formulas ---------------------------------------------------------------------------


def device_seconds(server: Server, running: int, steps: float) -> float:
    """A step of the device, on average, where a request has its seat for `steps` steps in the mean.

    A seat whose end is seen late computes nothing.
    """
    outputs = np.arange(1, CLAIMED_SHORT + 1)
    context = kv_read(np.full(len(outputs), PROMPT), outputs) / (MEAN - 1)
    device, is_decode = server.device, (MEAN - 1) / (steps - 1)

    def seconds_with(prompts: int) -> float:
        rows = round((running - prompts) * is_decode)
        return device.seconds(with_prompts(rows, round(rows * context), prompts, PROMPT))

    return binomial_mean(running, 1 / steps, seconds_with)


def host_seconds(server: Server, running: int) -> float:
    """Scheduling a step of so many running requests."""
    host = server.cost
    return host.base + host.per_running * running


def lost_form(server: Server, running: int) -> float:
    """Share of the requests/s that synchronous scheduling loses."""
    return synchronous_loss(device_seconds(server, running, MEAN), host_seconds(server, running))


def rate(server: Server, running: int, way: str) -> float:
    """Requests/s of `running` seats, `synchronous` or `asynchronous`."""
    is_late = WAYS[way]
    steps = MEAN + is_late
    host = host_seconds(server, running)
    if is_late:
        host -= server.cost.per_running * running / steps  # of the seats that have ended
    return running / (steps * step_seconds(device_seconds(server, running, steps), host, is_late))


def _first(is_so: Callable[[int], bool]) -> int | None:
    """The least number of running requests for which it is so, of which all greater are so; or None."""
    if not is_so(MOST):
        return None
    low, high = 1, MOST  # one seat: what ends late stands in nobody's way
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_so(middle) else (middle, high)
    return high


# --- the simulator ----------------------------------------------------------------------


def _row(server: Server, running: int, requests: int, seeds: range, progress: Progress) -> Row:
    found = []
    for seed in seeds:
        found.append(_rates(server, running, flood_of(requests, running, seed)))
        progress.step()
    means = estimates(found)
    return Row(
        running=running,
        host=host_seconds(server, running),
        step=device_seconds(server, running, MEAN),
        alone=means["alone"],
        synchronous=means["synchronous"],
        asynchronous=means["asynchronous"],
        lost=means["lost"],
        lost_form=lost_form(server, running),
        synchronous_form=rate(server, running, "synchronous"),
        asynchronous_form=rate(server, running, "asynchronous"),
    )


def flood_of(requests: int, running: int, seed: int) -> Workload:
    """Requests for `ROUNDS` of `running` seats at least."""
    random = np.random.Generator(np.random.PCG64([seed, running]))
    count = max(requests, ROUNDS * running)
    output = random.integers(1, CLAIMED_SHORT + 1, count)
    return Workload.from_columns(np.zeros(count), np.full(count, PROMPT), output, name="flood")


def _rates(server: Server, running: int, load: Workload) -> dict[str, float]:
    limits = server.limits(PROMPT + CLAIMED_SHORT, seats=running)
    found = {}
    for way, is_overlapped in WAYS.items():
        policy = f"vllm(async_scheduling={'true' if is_overlapped else 'false'})"
        cost: CostModel = server.device if way == "alone" else server.cost
        found[way] = requests_per_second(serve(policy, load, cost, limits), *STEADY)
    return found | {"lost": 1 - found["synchronous"] / found["alone"]}


# --- words ------------------------------------------------------------------------------


def answer(study: ShortFlood) -> Answer:
    """What happens, why, and what to do."""
    return Answer(
        title="Flood of very short requests: is the scheduler the bottleneck?",
        setting=f"{study.server}; outputs of 1 to {CLAIMED_SHORT} tokens, each alike, prompts of {PROMPT}, "
        f"always somebody waiting; mean of {study.repeat} seeds. Host: vLLM's measured schedule and update.",
        happens=[_table(study)],
        why=_why(study),
        answer=_answer(study),
    )


def _table(study: ShortFlood) -> Table:
    titles = ["running", "host", "step", "alone", "sync req/s", "formula", "lost", "formula"]
    return Table([*titles, "async req/s", "formula"], [_cells(row) for row in study.rows])


def _cells(row: Row) -> list[str]:
    return [
        str(row.running),
        seconds(row.host),
        seconds(row.step),
        amount(row.alone.value),
        amount(row.synchronous.value),
        amount(row.synchronous_form),
        share(row.lost.value),
        share(row.lost_form),
        amount(row.asynchronous.value),
        amount(row.asynchronous_form),
    ]


def _why(study: ShortFlood) -> list[str]:
    low, high = study.rows[0], study.rows[-1]
    return [
        f"Synchronous: n / (E[o] (step + host)), so host / (step + host) is lost; asynchronous: "
        f"n / ((E[o] + 1) max(step, host)), as an end is seen a step late; E[o] = {MEAN:g}. "
        f"From {low.running} to {high.running} running the host's time grows "
        f"{high.host / low.host:.0f}-fold, the step's {high.step / low.step:.1f}-fold: the weights are read "
        "once, whoever runs.",
        f"The article: {1e3 * study.claimed_host:g} ms on a {1e3 * study.claimed_step:g} ms step, "
        f"{study.claimed_share:.0%}; simulated, steps last {share(study.claimed_longer)} longer, "
        f"{share(1 - 1 / (1 + study.claimed_longer))} of the requests/s. The measured host takes that long "
        f"at {study.claimed_running:.0f} running; a step here takes {seconds(low.step)} at least.",
    ]


def _answer(study: ShortFlood) -> list[str]:
    worst = max(study.rows, key=lambda row: row.lost.value)
    lost = worst.alone.value - worst.synchronous.value
    return [
        f"Synchronous scheduling loses {share(worst.lost.value)} at {worst.running} running, "
        f"{amount(lost)} of {amount(worst.alone.value)} req/s; "
        f"{LOSS:.0%} or more {_from(study.crossing)}. The host is slower than the device "
        f"{_from(study.host_bound)}.",
        f"Asynchronous scheduling serves more {_from(study.worth)}, by "
        f"{share(worst.asynchronous.value / worst.synchronous.value - 1)} at {worst.running}; before that "
        f"what it hides is less than ends that are seen late, 1 / (E[o] + 1) = {share(1 / (MEAN + 1))}.",
    ]


def _from(running: int | None) -> str:
    return f"at no batch up to {MOST}" if running is None else f"from {running} running on"
