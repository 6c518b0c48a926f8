"""Tables that were built once, kept in the user's cache directory.

A file holds the digest of its own text, so that one that is damaged is told from one that is whole,
and built anew.  It is written whole or not at all; where it cannot be written, it is built each time.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from batchwright.cost import OperatorTimes
from batchwright.cost.surface import Plane, Polyline, Volume
from batchwright.errors import BatchwrightError, InputError
from batchwright.files import user_cache, write_whole
from batchwright.operators.engine import Asked
from batchwright.operators.package import Package

FORMAT: Final = 1  # of the file, and of the points that tables are asked at


def cache_folder() -> Path:
    """Where tables are kept: under the user's cache."""
    return user_cache() / "operators"


def place(package: Package, asked: Asked, folder: Path) -> Path:
    """The file of these tables.  A model's folder counts by what its config.json says."""
    key: dict[str, Any] = {"format": FORMAT, "package": str(package), **asdict(asked)}
    config = Path(asked.model) / "config.json"
    if config.is_file():
        key["config"] = sha256(config.read_bytes()).hexdigest()
    digest = sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    return folder / f"{asked.gpu}-{asked.model.rsplit('/', 1)[-1]}-{digest}.json".lower()


def load(file: Path) -> tuple[OperatorTimes, dict[str, str]] | None:
    """The tables of a file, and what was said of them; None if it is not there, or damaged."""
    try:
        head, body = file.read_text(encoding="utf-8").split("\n", 1)
        if head != sha256(body.encode()).hexdigest():
            return None
        found = json.loads(body)
        return _times(found["times"]), {str(name): str(text) for name, text in found["about"].items()}
    except (OSError, ValueError, KeyError, TypeError, BatchwrightError):
        return None


def save(file: Path, times: OperatorTimes, about: dict[str, str]) -> None:
    """Keep the tables; where there is no place for them, nothing is kept."""
    body = json.dumps({"about": about, "times": _plain(times)})
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, f"{sha256(body.encode()).hexdigest()}\n{body}", force=True)
    except (OSError, InputError):
        return


def _plain(times: OperatorTimes) -> dict[str, Any]:
    lines = {name: getattr(times, name) for name in ("shared", "decodes", "head")}
    found: dict[str, Any] = {name: [line.points, line.values] for name, line in lines.items()}
    found["context_tokens"] = times.context_tokens
    found["decode"] = [times.decode.rows, times.decode.columns, times.decode.values]
    first = times.prefill.planes[0]
    values = [plane.values for plane in times.prefill.planes]
    return found | {"prefill": [times.prefill.layers, first.rows, first.columns, values]}


def _times(found: dict[str, Any]) -> OperatorTimes:
    layers, rows, columns, planes = found["prefill"]
    name = "prefill attention"
    return OperatorTimes(
        shared=Polyline("shared", *found["shared"]),
        decodes=Polyline("decodes", *found["decodes"]),
        head=Polyline("head", *found["head"]),
        decode=Plane("decode attention", *found["decode"]),
        context_tokens=float(found["context_tokens"]),
        prefill=Volume(name, layers, [Plane(name, rows, columns, values) for values in planes]),
    )
