"""All studies: a new one is a module with `study(data)`, and one line here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

from batchwright.accuracy.study import Study
from batchwright.errors import InputError

MEASURED: Final = "measured"  # the folder of the measurements inside that of the data


class Entry(NamedTuple):
    """`module` of this package, and the file or folder of the measurements that it reads; empty: none."""

    module: str
    needs: str


STUDIES: Final = (
    Entry("rtx4090", "vllm_gpu"),
    Entry("rtx_pro_6000", "vllm_gpu"),
    Entry("rtx_pro_6000_fitted", "vllm_gpu"),
    Entry("rtx4090_timings", "vllm_gpu"),
    Entry("rtx_pro_6000_timings", "vllm_gpu"),
    Entry("accelmark", "accelmark"),
    Entry("kv_blocks", ""),
    Entry("cpu_steps", "vllm_cpu_steps.csv"),
    Entry("splitwise", "splitwise_sim"),
    Entry("argonne", "argonne"),
    Entry("sarathi", "sarathi_osdi24"),
)
Progress = Callable[[str, float], None]


@dataclass(frozen=True, kw_only=True)
class Found:
    """What came out.  `missing`: the entries whose measurements are not there."""

    studies: tuple[Study, ...]
    missing: tuple[Entry, ...]


def run_all(data: Path, strict: bool = False, report: Progress = lambda text, share: None) -> Found:
    """Run every study whose measurements are in `data`.

    Raises InputError if there are none, or one is broken; if `strict`, also if one is missing.
    """
    folder = measurements(data)
    missing = tuple(entry for entry in STUDIES if not (folder / entry.needs).exists())
    there = [entry for entry in STUDIES if entry not in missing]
    if not any(entry.needs for entry in there) or (missing and strict):
        names = ", ".join(dict.fromkeys(entry.needs for entry in missing))
        raise InputError(f"{folder}: has no {names}; give the folder that holds them")
    return Found(studies=tuple(_run(there, folder, report)), missing=missing)


def measurements(data: Path) -> Path:
    """The folder of the measurements: `measured` in `data`, or `data` itself.  Raises InputError."""
    if not data.is_dir():
        raise InputError(f"{data}: is no folder; give the folder of the measurements")
    inner = data / MEASURED
    return inner if inner.is_dir() else data


def _run(entries: list[Entry], folder: Path, report: Progress) -> Iterator[Study]:
    for done, entry in enumerate(entries):
        report(entry.module, done / len(entries))
        module = import_module(f"batchwright.accuracy.{entry.module}")
        yield module.study(folder)
