"""Builds the wheel.  All that is static stands in pyproject.toml.

BATCHWRIGHT_COMPILE=1 compiles the core with mypyc, from the same files that pure Python
runs.  It is opt-in, and never guessed from a compiler that happens to be present: a
compiler without Python's headers would turn an install that works into one that fails,
and what a machine builds would depend on what else is on it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from setuptools import Extension, setup

CORE = (
    "request", "step", "arrivals", "ranked", "blocks", "waiting", "log", "prediction", "tally",
    "speculation", "drafts", "host_memory", "movers", "refusals", "extremes", "batch", "swapping", "handover",
    "drafted", "driver", "simulator",
    "cluster/events", "cluster/replica", "cluster/routers", "cluster/cluster",
    "engines/sequence", "engines/work", "engines/numbered", "engines/live",
)  # fmt: skip
PACKAGES = ("cost", "policies")
# Not compiled: errors, which users may subclass (an interpreted class cannot inherit from
# a compiled one); contract and that of cluster, whose runtime-checkable protocols mypyc cannot
# make; limits, link and config, which are read once a run.

SAME_BITS = ["-ffp-contract=off", "-Wno-error"]  # no fused multiply-add: compiled == interpreted


def sources() -> list[str]:
    """The files of the core.  A missing one is an error, not a slower wheel."""
    package = Path("src/batchwright")
    files = [package / f"{name}.py" for name in CORE]
    for name in PACKAGES:
        files += sorted((package / name).glob("*.py"))
    missing = [str(file) for file in files if not file.is_file()]
    if missing:
        raise SystemExit(f"cannot compile the core: {', '.join(missing)} missing; correct CORE in setup.py")
    return [str(file) for file in files]


def extensions() -> list[Extension]:
    """The compiled core, or nothing for a pure wheel."""
    wanted = os.environ.get("BATCHWRIGHT_COMPILE", "0")
    if wanted not in ("0", "1"):
        raise SystemExit(f"BATCHWRIGHT_COMPILE is {wanted!r}, but must be 0 (pure Python) or 1 (mypyc)")
    if wanted == "0" or not any(command.startswith(("bdist", "build")) for command in sys.argv):
        return []
    from mypyc.build import mypycify

    # What the core does not import need not be there, nor be checked here.
    built: list[Extension] = mypycify(
        ["--follow-imports=silent", *sources()], opt_level="3", debug_level="0", group_name="batchwright"
    )
    if sys.platform != "win32":  # there the default, /fp:precise, fuses nothing
        for extension in built:
            extension.extra_compile_args += SAME_BITS
    return built


if os.environ.get("BATCHWRIGHT_COMPILE") == "1" and "editable_wheel" in sys.argv:
    raise SystemExit(
        "BATCHWRIGHT_COMPILE=1 with an editable install would hide your edits behind compiled files; "
        "install without -e, or unset BATCHWRIGHT_COMPILE"
    )

setup(ext_modules=extensions())
