"""How far attention of decodes was measured: the package answers beyond that too, by formulas of its own.

Its table has a row per (rows, KV tokens of one, heads, KV heads, size of a head).  What is greatest there
is bounded by the memory of one GPU, so it is the product of rows and KV tokens that matters.
"""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Any, Final

from batchwright.operators.package import Package

TABLE: Final = "generation_attention_perf.parquet"
HEADS: Final = ("num_heads", "num_key_value_heads", "head_dim")
WINDOW: Final = "window_size"  # 0: none; a column of newer tables


def measured_context(package: Package, gpu: str, engine: str, version: str, model: str, tp: int) -> float:
    """KV tokens of all rows of a step up to which such heads were measured; inf where that is not known."""
    heads = _heads(_config(package, model), tp)
    file = package.folder / "systems" / "data" / gpu / "attention" / engine / version / TABLE
    if heads is None or not file.is_file():
        return inf
    try:
        found = _greatest(file, heads)
    except Exception:  # another form of the package's own file
        return inf
    return found or inf


def _config(package: Package, model: str) -> dict[str, Any]:
    own = package.folder / "model_configs" / f"{model.replace('/', '--', 1)}_config.json"
    file = own if own.is_file() else Path(model) / "config.json"
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _heads(config: dict[str, Any], tp: int) -> tuple[int, int, int] | None:
    """Heads, KV heads and size of a head on one GPU; None: not a model with such."""
    heads, kv = config.get("num_attention_heads"), config.get("num_key_value_heads")
    if not isinstance(heads, int) or not isinstance(kv, int) or "kv_lora_rank" in config:
        return None
    size = config.get("head_dim") or config.get("hidden_size", 0) // heads
    return max(heads // tp, 1), max(kv // tp, 1), int(size)


def _greatest(file: Path, heads: tuple[int, int, int]) -> float:
    from pyarrow import compute, parquet

    filters = list(zip(HEADS, "===", heads, strict=True))
    if WINDOW in parquet.read_schema(file).names:
        filters.append((WINDOW, "=", 0))
    rows = parquet.read_table(file, columns=["batch_size", "isl", "step"], filters=filters)
    if not rows.num_rows:
        return 0.0
    context = compute.add(rows["isl"], rows["step"])
    return float(compute.max(compute.multiply(rows["batch_size"], context)).as_py())
