"""A run as a folder: what was run, what came out, request by request and step by step.

    config.yaml   the scenario, with everything that is needed to repeat it
    summary.json  the numbers of the comparison, as `--json` prints them
    requests      a row per policy and request   (Parquet with polars, else gzipped CSV)
    steps         a row per policy and step, replica by replica
    clients       a row per policy and client, where the load names clients

A folder is made beside its place and renamed when it is whole, so that one that is there is whole.
The same scenario and seed give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from batchwright import whole_folder
from batchwright.columns_file import read_columns, write_columns
from batchwright.errors import InputError, nearest
from batchwright.run import ReplicatedRun, Run
from batchwright.run.estimates import SPREADS
from batchwright.run_summary import AGAIN, checked
from batchwright.scenario.keys import Scenario
from batchwright.scenario.text import as_yaml, moved
from batchwright.version import __version__

CONFIG: Final = "config.yaml"
SUMMARY: Final = "summary.json"
KIND: Final = whole_folder.Kind(name="run folder", mark=SUMMARY)
_NUMBERS: Final = tuple(name for name in SPREADS if name != "itl_s")  # of every request
Table = dict[str, npt.NDArray[Any]]


def check_place(folder: Path, force: bool) -> None:
    """Raises InputError if `folder` is there, unless `force`; then only if it is no run."""
    whole_folder.check_place(folder, force, KIND)


def write(
    folder: Path,
    scenario: Scenario,
    summary: Mapping[str, Any],
    runs: Mapping[str, Run],
    force: bool = False,
) -> None:
    """Write all of a comparison, whole or not at all.  Raises InputError."""
    with whole_folder.whole(folder, force, KIND) as part:
        config = f"# batchwright {__version__}\n{as_yaml(moved(scenario, folder))}"
        (part / CONFIG).write_text(config, encoding="utf-8")
        (part / SUMMARY).write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
        write_columns(part / "requests", *_tables(runs, _by_replica(runs, lambda run: run.requests())))
        write_columns(part / "steps", *_tables(runs, _by_replica(runs, lambda run: run.made_steps())))
        if all(run.load.client is not None for run in runs.values()):
            write_columns(part / "clients", *_tables(runs, Run.clients))


def _tables(runs: Mapping[str, Run], columns_of: Callable[[Run], Table]) -> list[Callable[[], Table]]:
    """Per run, a function that makes its columns, with the policy before them."""
    return [partial(_labelled, name, run, columns_of) for name, run in runs.items()]


def _by_replica(runs: Mapping[str, Run], columns_of: Callable[[Run], Table]) -> Callable[[Run], Table]:
    """With a column `replica` for every run, if one of them has replicas."""
    has_replicas = any(isinstance(run, ReplicatedRun) for run in runs.values())
    return (lambda run: _numbered(columns_of(run))) if has_replicas else columns_of


def _numbered(columns: Table) -> Table:
    """With the column `replica` before them; one server has number 0."""
    count = len(next(iter(columns.values())))
    return {"replica": np.zeros(count, np.int64), **columns}


def _labelled(name: str, run: Run, columns_of: Callable[[Run], Table]) -> Table:
    columns = columns_of(run)
    return {"policy": np.repeat(name, len(next(iter(columns.values())))), **columns}


@dataclass(frozen=True)
class RunFolder:
    """A run folder that is read, its tables when they are asked for."""

    folder: Path

    @classmethod
    def open(cls, folder: Path) -> RunFolder:
        """Raises InputError if `folder` is no run."""
        found = cls(folder)
        found.summary  # noqa: B018  read now, so that a wrong folder is told now
        return found

    @cached_property
    def summary(self) -> dict[str, Any]:
        """What `summary.json` says."""
        file = self.folder / SUMMARY
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(f"{self.folder}: is no run folder; make one with compare -o") from None
        except (OSError, ValueError, RecursionError):
            raise InputError(f"{file}: is no whole JSON; {AGAIN}") from None
        return checked(found, file)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The keys of the scenario."""
        from batchwright.yaml_text import parse

        file = self.folder / CONFIG
        try:
            found = parse(file.read_text(encoding="utf-8"), str(file))
        except (OSError, UnicodeDecodeError):
            raise InputError(f"{file}: cannot be read; {AGAIN}") from None
        if not isinstance(found, dict):
            raise InputError(f"{file}: is no mapping of keys; {AGAIN}")
        return found

    def requests(self, policy: str) -> Table:
        """The rows of one policy, in order of arrival.  Raises InputError."""
        known = self.summary["policies"]
        if policy not in known:
            raise InputError(f"{self.folder}: has no policy {policy!r}{nearest(policy, known)}")
        rows = self._requests
        chosen = rows["policy"] == policy
        count = self.summary["workload"]["num_requests"]
        if chosen.sum() != count:
            place = self.folder / "requests"
            raise InputError(f"{place}: has {chosen.sum()} rows of {policy}, not {count}; {AGAIN}")
        return {name: values[chosen] for name, values in rows.items() if name != "policy"}

    @cached_property
    def _requests(self) -> Table:
        found = read_columns(self.folder / "requests")
        wrong = [name for name in _NUMBERS if name not in found or found[name].dtype.kind not in "fi"]
        if wrong or "policy" not in found:
            name = wrong[0] if wrong else "policy"
            raise InputError(f"{self.folder / 'requests'}: has no {name}, or no numbers there; {AGAIN}")
        return found
