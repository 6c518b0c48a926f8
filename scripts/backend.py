"""The build backend: setuptools, which asks for mypyc only when a compiled wheel is wanted."""

from __future__ import annotations

import os
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  (a backend is its functions)

MYPYC = "mypy[mypyc]>=2.4,<2.5"


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    requires: list[str] = build_meta.get_requires_for_build_wheel(config_settings)
    if os.environ.get("BATCHWRIGHT_COMPILE") == "1":
        requires.append(MYPYC)
    return requires
