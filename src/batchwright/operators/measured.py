"""A cost model from operators that a package has measured: `measured(gpu=..., model=...)`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Final

from batchwright.cost import Table
from batchwright.errors import InputError
from batchwright.operators import cache
from batchwright.operators.engine import Asked, MeasuredEngine
from batchwright.operators.memory import roofline_of
from batchwright.operators.names import find_gpu, find_model, kv_mode
from batchwright.operators.package import Package, installed
from batchwright.operators.tables import operator_times

ENGINE: Final = "vllm"


def measured(
    gpu: str,
    model: str,
    tp: int = 1,
    ep: bool = False,
    engine: str = ENGINE,
    version: str | None = None,
    quantization: str | None = None,
    kv_cache_dtype: str = "auto",
    folder: Path | None = None,
) -> Table:
    """The time of a step from operators that were measured on that GPU under that engine.

    gpu, model      names of this package or of the one with the measurements; or the folder of a config.json
    tp, ep          GPUs that share the model; are its experts spread over them?
    version         of the engine; None: the usual one of the package
    quantization    of weights: fp8, awq, gptq or the package's own name; None: as in the model's config.json
    kv_cache_dtype  bfloat16 (also auto), fp8 or the package's own name
    folder          of the cache; None: that of the user

    Raises InputError if no package with measurements is installed, or it has none of what is asked for.
    """
    package = installed()
    asked = asked_of(package, gpu, model, tp, ep, engine, version, quantization, kv_cache_dtype)
    file = cache.place(package, asked, cache.cache_folder() if folder is None else folder)
    kept = cache.load(file)
    if kept is not None:
        times, about = kept
        return Table(times, tuple(about.items()), roofline_of(asked))
    table = built(package, opened(package, asked))
    cache.save(file, table.times, dict(table.about))
    return table


def asked_of(
    package: Package,
    gpu: str,
    model: str,
    tp: int,
    ep: bool,
    engine: str,
    version: str | None,
    quantization: str | None,
    kv_cache_dtype: str,
) -> Asked:
    """What is asked for in the package's names.  Raises InputError."""
    if tp < 1:
        raise InputError(f"tp of measured is {tp}, but must be at least 1")
    return Asked(
        gpu=find_gpu(package, gpu, engine),
        model=find_model(package, model),
        tp=tp,
        ep=ep,
        engine=engine,
        version=version,
        quantization=quantization,
        kv_cache_dtype=kv_cache_dtype,
    )


def opened(package: Package, asked: Asked) -> MeasuredEngine:
    """The package's answers to what is asked for, its data loaded.  Raises InputError."""
    versions = package.versions(asked.gpu, asked.engine)
    if not versions or (asked.version is not None and asked.version not in versions):
        raise InputError(
            f"{package} has no measurements of {asked.engine} {asked.version or ''} on {asked.gpu}; "
            f"it has version {' and '.join(versions) or 'none'}"
        )
    return MeasuredEngine(package, replace(asked, version=asked.version or versions[0]))


def built(package: Package, source: MeasuredEngine) -> Table:
    """The tables, asked of the package anew.  Raises InputError."""
    begin = perf_counter()
    times = operator_times(source)
    seconds = perf_counter() - begin
    said = about(package, source, seconds)
    return Table(times, tuple(said.items()), roofline_of(source.asked))


def about(package: Package, source: MeasuredEngine, seconds: float) -> dict[str, str]:
    """What the tables are, in words."""
    asked = source.asked
    return {
        "package": str(package),
        "engine": f"{asked.engine} {asked.version}",
        "gpu": f"{asked.tp} x {asked.gpu}{', experts spread over them' if asked.ep else ''}",
        "model": asked.model,
        "weights": asked.quantization or "as in its config.json",
        "kv_cache": kv_mode(asked.kv_cache_dtype),
        "times": ", ".join(f"{share:.0%} {kind}" for kind, share in source.kinds().items()),
        "built": f"in {seconds:.2f} s",
    }
