"""pytest-xdist needs the same tests, by name, from every one of its processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.pure

ANOTHER_DAY = "import time\nnow = time.time\ntime.time = lambda: now() + 1e6\n"


def test_names_of_tests_are_the_same_on_another_day_and_under_another_hash_seed(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    mine = {item.nodeid for item in request.session.items}
    (tmp_path / "another_day.py").write_text(ANOTHER_DAY)
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    path = os.pathsep.join([str(tmp_path), *sys.path])
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "another_day", "-p", "no:xdist",
         *sorted({str(item.path) for item in request.session.items})],
        cwd=request.config.rootpath, env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert mine <= set(found.stdout.splitlines())
