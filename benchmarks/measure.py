"""Measure jobs against each other: interleaved, each in a fresh process, the best of n."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TAIL = 160  # characters of an error that are shown


class NotMeasured(Exception):
    """A job could not run; the text says why, in one line."""


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """A Python and the folders that it imports from, before its own."""

    python: Path
    folders: tuple[Path, ...] = ()
    compiled: bool = False

    def environment(self) -> dict[str, str]:
        paths = os.pathsep.join(str(folder) for folder in (*self.folders, ROOT))
        return os.environ | {"PYTHONPATH": paths, "PYTHONHASHSEED": "0"}


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of one worker."""

    runtime: Runtime
    worker: str = "ours"
    load: str = "W1"
    num_requests: int = 10_000
    caching: str = "off"
    policy: str = "vllm(async_scheduling=false)"
    skip: bool = True
    lazy: bool = False
    trace: str | None = None

    def text(self) -> str:
        return json.dumps({name: value for name, value in vars(self).items() if name != "runtime"})


@dataclass(frozen=True, kw_only=True)
class Result:
    """CPU seconds of the fastest run; the other figures are of the same run."""

    seconds: float
    end: float
    megabytes: float
    file: str


def best(jobs: Sequence[Job], repeats: int) -> list[Result]:
    """The fastest of `repeats` runs of every job; a slow spell of the machine meets all jobs alike."""
    runs = [[run(job) for job in jobs] for _ in range(repeats)]
    return [min(results, key=lambda result: result.seconds) for results in zip(*runs, strict=True)]


def run(job: Job) -> Result:
    """One run in a fresh process.  Raises NotMeasured if it fails or ran other code than was asked for."""
    if not job.runtime.python.exists():
        raise NotMeasured(f"{job.runtime.python} is missing")
    done = subprocess.run(
        [job.runtime.python, "-m", "benchmarks.workers", job.text()],
        cwd=ROOT,
        env=job.runtime.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit {done.returncode}"]
        raise NotMeasured(lines[-1][:TAIL])
    result = Result(**json.loads(done.stdout.splitlines()[-1]))
    if result.file.endswith(".py") is job.runtime.compiled:
        raise NotMeasured(f"{result.file} is not what was to be measured")
    return result
