"""A run folder of `compare -o` or `live -o`, read as if it were measured: one policy of it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from batchwright.columns_file import read_columns
from batchwright.errors import InputError
from batchwright.imported.choose import chosen
from batchwright.imported.result import Imported
from batchwright.imported.source import Source
from batchwright.imported.step_log import step_findings
from batchwright.metrics import Numbers

SUMMARY: Final = "summary.json"
FORM: Final = "run folder of batchwright"
CONVENTIONS: Final = ("TTFT, TPOT and E2E are ours: it is our own folder",)
NEEDED: Final = {
    "requests": ("policy", "finished_s"),
    "steps": ("policy", "start_s", "end_s", "running", "waiting", "preempted"),
}
_LIMITS: Final = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "block_size",
    "enable_prefix_caching",
)


def matches(source: Source) -> bool:
    return source.is_folder and (source.path / SUMMARY).is_file() and (source.path / "config.yaml").is_file()


def read(source: Source) -> Imported:
    """One policy of the folder.  Raises InputError if it is not whole, or has several and none is chosen."""
    file = Source.open(source.path / SUMMARY, None)
    summary = file.whole
    if (
        not isinstance(summary, dict)
        or not isinstance(summary.get("policies"), dict)
        or not summary["policies"]
    ):
        raise InputError(f"{file.name}: is no summary of a run; run the comparison again")
    names = list(summary["policies"])
    name = names[chosen(source, names)]
    steps = _rows(source, "steps", name)
    requests = _rows(source, "requests", name)
    done = ~np.isnan(requests["finished_s"])
    return Imported(
        file=source.name,
        form=f"{FORM}, policy {name}",
        conventions=CONVENTIONS,
        findings=() if "replica" in steps else tuple(step_findings(steps)),
        about={"engine": "batchwright", "policy": name, **_limits(summary)},
        requests={**requests, "is_completed": done.astype(np.int64)},
        steps=steps,
        series={"time_s": steps["end_s"], "running": steps["running"], "waiting": steps["waiting"]},
        totals={"preemptions": float(steps["preempted"].sum()), "num_steps": float(len(steps["end_s"]))},
    )


def _rows(source: Source, table: str, policy: str) -> dict[str, Numbers]:
    found = read_columns(source.path / table)
    for column in NEEDED[table]:
        if column not in found or (column != "policy" and found[column].dtype.kind not in "fiu"):
            place = source.path / table
            raise InputError(f"{place}: has no {column}, or no numbers there; run the comparison again")
    chosen_rows = found.pop("policy") == policy
    return {name: values[chosen_rows] for name, values in found.items()}


def _limits(summary: dict[str, Any]) -> dict[str, Any]:
    limits = summary.get("limits")
    limits = limits if isinstance(limits, dict) else {}
    known = {name: limits[name] for name in _LIMITS if limits.get(name) is not None}
    blocks = limits.get("num_kv_blocks")
    return known if blocks is None else {**known, "num_gpu_blocks": blocks + 1}
