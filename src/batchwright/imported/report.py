"""What was imported, as text, table and JSON: the metrics by our definitions (see `metrics`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from batchwright.figures import amount, count, seconds
from batchwright.imported.folder import heading
from batchwright.imported.result import METRICS, Imported
from batchwright.metrics import Numbers, Spread, spread
from batchwright.plain_table import plain_table

if TYPE_CHECKING:
    from rich.table import Table

SHOWN: Final = {"mean": "mean", "p50": "P50", "p90": "P90", "p99": "P99"}
WRONG: Final = "wrong: "
ODD: Final = "note: "


def spreads(found: Imported) -> dict[str, Spread]:
    """Of every metric that the measurements have, by name; failed requests are not counted."""
    values = {name: column for name, column in (found.requests or {}).items() if name in METRICS}
    if found.gaps is not None:
        values["itl_s"] = np.concatenate([np.empty(0), *found.gaps])
    made = {name: spread(values[name]) for name in METRICS if name in values}
    return {name: one for name, one in made.items() if one.is_defined}


def lines(found: Imported) -> list[str]:
    """All but the table: the form, its conventions, what it is about, what is wrong."""
    return [
        f"{found.file}: {found.form}",
        *(f"  {line}" for line in (*found.conventions, *_about(found), *_counts(found))),
        *(f"{WRONG if one.is_wrong else ODD}{one.text}" for one in found.findings),
    ]


def _about(found: Imported) -> list[str]:
    return [", ".join(f"{name} {value}" for name, value in found.about.items())] if found.about else []


def _counts(found: Imported) -> list[str]:
    """How many rows of each kind there are, and the lengths of the requests."""
    parts = []
    if found.requests is not None:
        parts.append(_requests(found))
    tables = {"steps": found.steps, "samples of the server's state": found.series}
    for what, columns in tables.items():
        if columns is not None:
            parts.append(f"{count(len(next(iter(columns.values()), ())))} {what}")
    return parts


def _requests(found: Imported) -> str:
    columns = found.requests or {}
    number = len(next(iter(columns.values())))
    done = columns.get("is_completed", np.ones(number)) > 0
    text = f"{count(number)} requests"
    if not done.all():
        text += f" ({count(int(done.sum()))} completed)"
    if "duration_s" in found.totals:
        text += f" over {seconds(found.totals['duration_s'])}"
    named = {"prompt_tokens": "prompt", "output_tokens": "output"}
    lengths = [f"{what} {_lengths(columns[name][done])}" for name, what in named.items() if name in columns]
    return f"{', '.join([text, *lengths])} tokens (mean/P50/P99)" if lengths and done.any() else text


def _lengths(values: Numbers) -> str:
    found = spread(values)
    return "/".join(f"{value:.0f}" for value in (found.mean, found.p50, found.p99))


def table(found: Imported) -> Table | None:
    """A row per metric, a column per statistic; None if it has no metric."""
    from rich.text import Text

    made = spreads(found)
    if not made:
        return None
    result = plain_table()
    result.add_column("")
    for title in SHOWN.values():
        result.add_column(title, justify="right")
    for name, one in made.items():
        result.add_row(Text(METRICS[name]), *(seconds(getattr(one, key)) for key in SHOWN))
    return result


def rates(found: Imported) -> str:
    """Throughput in words; empty if it is not known."""
    known = {"requests_per_s": "requests/s", "output_tokens_per_s": "output tokens/s"}
    known["total_tokens_per_s"] = "prompt + output tokens/s"
    parts = [f"{amount(found.totals[key])} {what}" for key, what in known.items() if key in found.totals]
    return ", ".join(parts)


def to_json(found: Imported) -> dict[str, Any]:
    """What `--json` prints; the schema is in docs/import.md."""
    return {
        **heading(found),
        "metrics": {name: one.to_json() for name, one in spreads(found).items()},
        "num_requests": _length(found.requests),
        "num_steps": _length(found.steps),
        "num_samples": _length(found.series),
    }


def _length(columns: Any) -> int | None:
    return None if columns is None else len(next(iter(columns.values()), ()))
