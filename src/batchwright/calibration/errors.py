"""How far predicted seconds are from measured ones, over all steps and class by class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from batchwright.metrics import Numbers

BATCHES: Final = (1, 4, 16, 64, 256)  # greatest number of running requests of each class


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Relative errors of steps; `total`: of the sum of their seconds, with its sign."""

    mean: float
    p95: float
    total: float

    def to_json(self) -> dict[str, float]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Class:
    """Steps that are alike.  `share`: of the measured time."""

    name: str
    steps: int
    share: float
    errors: Errors


def errors(predicted: Numbers, measured: Numbers) -> Errors:
    """Of `predicted` against `measured`."""
    relative = np.abs(predicted / measured - 1)
    return Errors(
        mean=float(relative.mean()),
        p95=float(np.percentile(relative, 95)),
        total=float(predicted.sum() / measured.sum() - 1),
    )


def classes(work: Mapping[str, Numbers], predicted: Numbers, measured: Numbers) -> list[Class]:
    """By what the steps compute, then by their batch; those without steps are left out."""
    found = []
    for name, is_one in _masks(work):
        if is_one.any():
            share = float(measured[is_one].sum() / measured.sum())
            errs = errors(predicted[is_one], measured[is_one])
            found.append(Class(name=name, steps=int(is_one.sum()), share=share, errors=errs))
    return found


def _masks(work: Mapping[str, Numbers]) -> Iterator[tuple[str, Numbers]]:
    has_prompt, rows = work["prefill_tokens"] > 0, work["num_decodes"] + work.get("padded_rows", 0.0)
    yield "decodes only", ~has_prompt
    yield "prompt tokens only", has_prompt & (rows == 0)
    yield "both", has_prompt & (rows > 0)
    running = rows + work.get("num_chunks", has_prompt.astype(np.float64))
    low = 0
    for most in BATCHES:
        yield f"{low + 1} to {most} running" if most > 1 else "1 running", (running > low) & (running <= most)
        low = most
    yield f"over {low} running", running > low
