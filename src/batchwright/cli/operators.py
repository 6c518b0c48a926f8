"""`batchwright operators`: what an installed package has measured, and the step times that follow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import inf
from time import perf_counter
from typing import Any, Final

from batchwright.cli.screen import screen
from batchwright.cost import Table
from batchwright.errors import InputError
from batchwright.operators.beside import Beside, beside
from batchwright.operators.check import Difference, difference
from batchwright.operators.measured import asked_of, built, opened
from batchwright.operators.package import Package, installed
from batchwright.plain_table import plain_table, table_text

CAVEAT: Final = (
    "Every decode and prompt has 1000 tokens. The roofline is uncalibrated and has 0.5 ms of launch in it;\n"
    "measured operators leave out the host, and the gaps between kernels."
)
ALONE: Final = (
    "Every decode and prompt has 1000 tokens. There is no roofline beside: the catalogue lacks the GPU, the\n"
    "model, or these types of numbers. Measured operators leave out the host, and the gaps between kernels."
)


@dataclass(frozen=True, kw_only=True)
class Given:
    """The flags."""

    gpu: str | None
    model: str | None
    tp: int
    ep: bool
    engine: str
    version: str | None
    quantization: str | None
    kv_cache_dtype: str


def operators(given: Given, as_json: bool) -> None:
    """List what there is, or build tables anew and check them.  Raises InputError."""
    package = installed()
    if given.gpu is None and given.model is None:
        _list(package, as_json)
        return
    if given.gpu is None or given.model is None:
        missing, other = ("--gpu", "--model") if given.gpu is None else ("--model", "--gpu")
        raise InputError(f"{other} is given without {missing}; give both, or neither to see what there is")
    asked = asked_of(package, **asdict(given))
    begin = perf_counter()
    source = opened(package, asked)
    loaded = perf_counter() - begin
    table = built(package, source)
    found, steps = difference(table, source), beside(table)
    if as_json:
        print(json.dumps(_as_json(table, loaded, found, steps), indent=2))
        return
    _print(table, loaded, found, steps)


def _list(package: Package, as_json: bool) -> None:
    versions = {
        gpu: {engine: package.versions(gpu, engine) for engine in engines}
        for gpu, engines in package.systems.items()
    }
    if as_json:
        print(json.dumps({"package": str(package), "gpus": versions, "models": package.models}, indent=2))
        return
    console = screen()
    console.print(f"measured by {package}")
    table = plain_table()
    for title in ("GPU", "engine and version, the usual one first"):
        table.add_column(title, overflow="fold")
    for gpu, engines in versions.items():
        known = [f"{name} {', '.join(found)}" for name, found in engines.items() if found]
        table.add_row(gpu, "; ".join(known))
    console.print(table_text(table, console.width))
    console.print(f"\nmodels: {', '.join(package.models)}; or the folder of a config.json")


def _as_json(table: Table, loaded: float, found: Difference, steps: list[Beside]) -> dict[str, Any]:
    kept = {name: [least, most if most < inf else None] for name, (least, most) in table.range.items()}
    shown = [{"step": s.what, "measured_s": s.measured, "roofline_s": s.roofline} for s in steps]
    about = dict(table.about)
    return {"about": about, "loaded_s": loaded, "error": asdict(found), "range": kept, "steps": shown}


def _print(table: Table, loaded: float, found: Difference, steps: list[Beside]) -> None:
    console = screen()
    for line in _lines(table, loaded, found):
        console.print(line)
    console.print(f"\n{table_text(_table(steps), console.width)}")
    console.print(f"\n{CAVEAT if steps[0].roofline is not None else ALONE}")


def _lines(table: Table, loaded: float, found: Difference) -> Iterator[str]:
    about, within = dict(table.about), table.range
    yield f"{about['model']} on {about['gpu']} under {about['engine']}, measured by {about['package']}"
    yield f"  weights {about['weights']}, KV cache {about['kv_cache']}; of the time {about['times']}"
    yield f"  loaded in {loaded:.2f} s, built {about['built']}"
    yield (
        f"  against direct questions for {found.steps} steps drawn at random: mean error {found.mean:.2%}, "
        f"P99 {found.p99:.2%}, greatest {found.greatest:.1%}"
    )
    kv = within["context_tokens"][1]
    yield (
        f"  steps of up to {within['tokens'][1]:.0f} tokens, {within['num_decodes'][1]:.0f} decodes"
        + (f" with {kv:.0f} KV tokens together" if kv < inf else "")
        + "; beyond that time grows in proportion"
    )


def _table(steps: list[Beside]) -> Any:
    table = plain_table()
    table.add_column("step")
    for title in ("measured, ms", "roofline, ms", "measured / roofline"):
        table.add_column(title, justify="right")
    for step in steps:
        other = step.roofline
        ratio = ("-", "-") if other is None else (f"{1e3 * other:.2f}", f"{step.measured / other:.2f}")
        table.add_row(step.what, f"{1e3 * step.measured:.2f}", *ratio)
    return table
