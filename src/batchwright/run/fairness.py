"""Does everybody get the same service?  Clients of a trace compared, and requests with themselves alone.

    Jain index     (sum x)^2 / (n sum x^2) of the clients' mean normalised latencies x: 1 if all
                   wait as long for a token, 1 / n if one waits and the others do not
    slowdown       E2E / E2E of the same request alone on the same server: its prompt in chunks of
                   max_num_batched_tokens, then its decodes, without a prefix cache

Latency per token is compared, not tokens per second: those also differ where clients ask for more
or less.  Mean slowdowns compare clients whose requests differ in length.
Source: Jain, Chiu and Hawe, DEC-TR-301, 1984.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from batchwright.cost import Stretch
from batchwright.errors import InputError
from batchwright.metrics import Numbers, number, statistic
from batchwright.step import Step

if TYPE_CHECKING:
    from batchwright.run import Run

SPREAD: tuple[tuple[str, str], ...] = tuple(
    (column, which) for column in ("ttft_s", "tpot_s", "e2e_s") for which in ("p50", "p90", "p99")
)


@dataclass(frozen=True, kw_only=True)
class Fairness:
    """`num_clients` and `jain` are 0 and nan where the trace names no clients, or none was served.

    num_starved    clients of whom no request has finished; they have no latency and no part in `jain`
    max_slowdown   of any request, and the `client` that sent it (-1: the trace names none)
    jain_slowdown  Jain's index of the clients' mean slowdowns, which are of equal size for all lengths
    worst_ttft     seconds: the greatest P99 of TTFT of any client, and `worst_client`, whose it is (or -1)
    """

    num_clients: int
    num_starved: int
    jain: float
    max_slowdown: float
    mean_slowdown: float
    client: int
    jain_slowdown: float
    worst_ttft: float
    worst_client: int

    def to_json(self) -> dict[str, float | None]:
        """Shares and ratios; None is not applicable."""
        return {
            "num_clients": self.num_clients,
            "num_starved": self.num_starved,
            "jain": number(self.jain),
            "max_slowdown": number(self.max_slowdown),
            "mean_slowdown": number(self.mean_slowdown),
            "jain_slowdown": number(self.jain_slowdown),
            "worst_client_ttft_s_p99": number(self.worst_ttft),
        }


def fairness(run: Run) -> Fairness:
    """How alike the clients of a run were served."""
    slow = run.slowdown
    is_served = ~np.isnan(slow)
    worst = int(np.nanargmax(slow)) if is_served.any() else -1
    return Fairness(
        max_slowdown=float(slow[worst]) if worst >= 0 else np.nan,
        mean_slowdown=float(slow[is_served].mean()) if worst >= 0 else np.nan,
        client=int(run.load.client[worst]) if worst >= 0 and run.load.client is not None else -1,
        **_between_clients(run),
    )


def _between_clients(run: Run) -> dict[str, Any]:
    """What compares the clients, for `Fairness`."""
    if run.load.client is None:
        values = {name: np.nan for name in ("jain", "jain_slowdown", "worst_ttft")}
        return {"num_clients": 0, "num_starved": 0, "worst_client": -1, **values}
    rows = clients(run)
    latencies, late = rows["normalised_s_mean"], rows["ttft_s_p99"]
    is_starved = np.isnan(latencies)
    worst = -1 if np.isnan(late).all() else int(np.nanargmax(late))
    return {
        "num_clients": len(latencies),
        "num_starved": int(is_starved.sum()),
        "jain": jain(latencies[~is_starved]),
        "jain_slowdown": jain(rows["slowdown_mean"][~is_starved]),
        "worst_ttft": _greatest(late),
        "worst_client": -1 if worst < 0 else int(rows["client"][worst]),
    }


def jain(values: Numbers) -> float:
    """Jain's index of values that are not negative; nan of none."""
    squares = float((values**2).sum())
    return float(values.sum()) ** 2 / (len(values) * squares) if squares > 0 else np.nan


def clients(run: Run) -> dict[str, Numbers]:
    """One row per client, in order of their numbers, as columns.  Raises InputError if the trace has none."""
    if run.load.client is None:
        raise InputError(f"{run.load.name} names no clients; give a trace that does, or a load with clients")
    columns = run.requests()
    order = np.argsort(run.load.client, kind="stable")
    names, starts = np.unique(run.load.client[order], return_index=True)
    rows = np.split(order, starts[1:])
    found: dict[str, Numbers] = {"client": names, "requests": np.array([len(row) for row in rows])}
    found["finished"] = np.array([np.count_nonzero(~np.isnan(columns["finished_s"][row])) for row in rows])
    found["output_tokens"] = np.array([_served(columns, row) for row in rows], np.int64)
    for column, which in (*SPREAD, ("normalised_s", "mean")):
        found[f"{column}_{which}"] = np.array([statistic(columns[column][row], which) for row in rows])
    found["slowdown_mean"] = np.array([statistic(run.slowdown[row], "mean") for row in rows])
    found["slowdown_max"] = np.array([_greatest(run.slowdown[row]) for row in rows])
    return found


def _served(columns: dict[str, Numbers], row: Numbers) -> int:
    return int(columns["output_tokens"][row][~np.isnan(columns["finished_s"][row])].sum())


def _greatest(values: Numbers) -> float:
    return float(np.nanmax(values)) if not np.isnan(values).all() else np.nan


def alone(prompt: Numbers, output: Numbers, budget: int, stretch: Stretch) -> Numbers:
    """Seconds from arrival to end of each request on a server that has nothing else to do."""
    known: dict[int, float] = {}  # by prompt length
    found = np.empty(len(prompt))
    step = Step()
    for i, (tokens, count) in enumerate(zip(prompt.tolist(), output.tolist(), strict=True)):
        if tokens not in known:
            known[tokens] = _prefill(tokens, budget, stretch)
        step.quiet(1, 0, tokens)
        found[i] = known[tokens] + (stretch(step, count - 1) if count > 1 else 0.0)
    return found


def _prefill(prompt: int, budget: int, stretch: Stretch) -> float:
    """Seconds of a prompt in chunks of `budget` tokens."""
    seconds = 0.0
    for past in range(0, prompt, budget):
        tokens = min(budget, prompt - past)
        step = Step()
        step.prefill_tokens, step.num_chunks, step.past_tokens = tokens, 1, past
        step.prefill_attention = tokens * (past + 0.5 * tokens)
        step.sampled_rows = 1 if past + tokens == prompt else 0
        seconds += stretch(step, 1)
    return seconds
