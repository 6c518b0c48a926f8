"""Which of our policies, and which of its versions, is nearest to an engine of some version."""

from __future__ import annotations

import re
from typing import Final

from batchwright.errors import InputError
from batchwright.policies.sglang import VERSIONS as SGLANG
from batchwright.policies.tgi import RATIOS as TGI
from batchwright.policies.vllm import FLAGS as VLLM

KNOWN: Final = {"vllm": tuple(VLLM), "sglang": tuple(SGLANG), "tgi": tuple(TGI), "tensorrt_llm": ()}
ASYNC: Final = (0, 14)  # where asynchronous scheduling did
_NUMBERS: Final = re.compile(r"v?(\d+)(?:\.(\d+))?(?:\.\w+)*")
_MINOR: Final = 1000  # more than there are minor versions of a major one

Release = tuple[int, int]


def release_of(version: str) -> Release:
    """Major and minor.  Raises InputError on what is no version."""
    match = _NUMBERS.fullmatch(version)
    if match is None:
        raise InputError(f"--like: {version!r} is no version such as 0.19; correct it")
    return int(match[1]), int(match[2] or 0)


def nearest_version(engine: str, release: Release) -> str:
    """Of the versions that the policy knows; empty if it knows none."""
    place = _place(release)
    return min(KNOWN[engine], key=lambda known: abs(_place(release_of(known)) - place), default="")


def _place(release: Release) -> int:
    return release[0] * _MINOR + release[1]
