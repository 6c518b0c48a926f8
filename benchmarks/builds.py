"""Where the code that is measured lies; compiles the first sketch."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.cases import Runtimes
from benchmarks.measure import ROOT, TAIL, NotMeasured, Runtime

FIRST = ROOT / "benchmarks" / "first"
BUILT = ROOT / "build" / "benchmarks"


def runtimes(plain: Path, compiled: Path, peers: Path) -> Runtimes:
    """What each Python runs: ours from `src` or as installed, the first sketch from here or compiled."""
    return Runtimes(
        plain=Runtime(python=plain, folders=(ROOT / "src",)),
        compiled=Runtime(python=compiled, compiled=True),
        first_plain=Runtime(python=plain, folders=(ROOT / "benchmarks",)),
        first_compiled=Runtime(python=plain, folders=(BUILT,), compiled=True),
        peers=Runtime(python=peers),
    )


def compile_first(python: Path) -> None:
    """Compile the first sketch with mypyc, unless that is done.  Raises NotMeasured if it fails."""
    target = BUILT / "first"
    if any(target.glob("batch.*.so")) and _newest(target) >= _newest(FIRST):
        return
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(FIRST, target, ignore=shutil.ignore_patterns("__pycache__"))
    files = [f"first/{name}.py" for name in ("batch", "policies", "simulator")]
    done = subprocess.run(
        [python, "-c", "import sys; from mypyc.__main__ import main; main()", *files],
        cwd=BUILT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise NotMeasured(f"mypyc failed: {done.stderr.strip()[-TAIL:]}")


def _newest(folder: Path) -> float:
    return max(file.stat().st_mtime for file in folder.glob("*.*"))


def default_python(environment: str) -> Path:
    """The Python of an environment that `make bench` makes."""
    return ROOT / environment / "bin" / "python"


def this_python() -> Path:
    return Path(sys.executable)
