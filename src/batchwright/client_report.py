"""The clients of a load side by side: how long each waits for its first token under every policy."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from batchwright.figures import count, seconds
from batchwright.metrics import Numbers, number
from batchwright.plain_table import plain_table
from batchwright.run import Run

if TYPE_CHECKING:
    from rich.table import Table

MOST: Final = 10  # rows


def client_table(runs: Mapping[str, Run]) -> Table | None:
    """A row per client of the first load, of many only those that wait longest; None if they are not two."""
    from rich.text import Text

    if _num_clients(runs) < 2:
        return None
    rows = {name: run.clients() for name, run in runs.items()}
    shown = _shown(rows)
    table = plain_table(title_justify="left")
    table.title = Text(f"TTFT by client, P50 and P99{_which(shown, rows)}")
    for title in ("client", "requests", *rows):
        table.add_column(Text(title), justify="right", overflow="fold")
    first = next(iter(rows.values()))
    for i in shown.tolist():
        cells = [f"{seconds(row['ttft_s_p50'][i])}, {seconds(row['ttft_s_p99'][i])}" for row in rows.values()]
        table.add_row(str(first["client"][i]), count(first["requests"][i]), *cells)
    return table


def clients_json(run: Run) -> dict[str, list[Any]] | None:
    """The columns of `Run.clients`, null where nothing applies; None if the load names no clients."""
    if run.load.client is None:
        return None
    return {name: [_plain(value) for value in column.tolist()] for name, column in run.clients().items()}


def _plain(value: float) -> float | None:
    return value if isinstance(value, int) else number(value)


def _num_clients(runs: Mapping[str, Run]) -> int:
    load = next(iter(runs.values())).load
    return 0 if load.client is None else len(np.unique(load.client))


def _shown(rows: Mapping[str, dict[str, Numbers]]) -> Numbers:
    """Places of the clients that are shown: those whose worst P99 is greatest, in order of their numbers."""
    late = zip(*(row["ttft_s_p99"] for row in rows.values()), strict=True)
    worst = np.array([_worst(values) for values in late])
    return np.sort(np.argsort(-worst, kind="stable")[:MOST])


def _worst(values: tuple[float, ...]) -> float:
    """The greatest; a client that nobody served is worse than any."""
    return float("inf") if any(map(isnan, values)) else max(values)


def _which(shown: Numbers, rows: Mapping[str, dict[str, Numbers]]) -> str:
    total = len(next(iter(rows.values()))["client"])
    return "" if total == len(shown) else f": the {len(shown)} of {total} clients whose P99 is greatest"
