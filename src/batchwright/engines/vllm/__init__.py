"""Batchwright inside vLLM, and vLLM's own schedules as recordings.

    Static, Dynamic   schedulers for `--scheduler-cls`: batching families as caps on admission
    Admission         the base of such a scheduler, for a rule of your own
    step_log          a stat logger that writes what every step did
    record            writes random schedules of the installed vLLM

Names are imported when they are first used: the recorder runs on any version of vLLM, while the
schedulers refuse those that they do not know.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchwright.engines.vllm.schedulers import Admission, Dynamic, Static

__all__ = ["Admission", "Dynamic", "Static"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'batchwright.engines.vllm' has no attribute {name!r}")
    return getattr(import_module("batchwright.engines.vllm.schedulers"), name)
