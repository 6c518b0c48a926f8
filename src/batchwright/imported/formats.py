"""The forms of measurements that are read, told by what is in them.

A new one is a module with `matches` and `read`, and one line here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from batchwright.errors import InputError
from batchwright.imported import (
    folder,
    model_steps,
    prometheus,
    run_steps,
    serving_folder,
    step_log,
    vllm_bench,
    vllm_log,
)
from batchwright.imported.result import Imported
from batchwright.imported.source import Source


class Format(NamedTuple):
    """`matches(source)` looks at content, never at a file's name; `read(source)` raises InputError."""

    name: str
    matches: Callable[[Source], bool]
    read: Callable[[Source], Imported]


FORMATS: Final = (  # the first that matches reads it
    Format("a folder that import -o wrote", folder.matches, folder.read),
    Format("vllm bench serve --save-detailed", vllm_bench.matches, vllm_bench.read),
    Format("a run folder of compare -o", run_steps.matches, run_steps.read),
    Format("a bench folder of LLMServingSim", serving_folder.matches, serving_folder.read),
    Format("a step log by batchwright", step_log.matches, step_log.read),
    Format("steps timed inside vLLM", model_steps.matches, model_steps.read),
    Format("/metrics of vLLM or SGLang", prometheus.matches, prometheus.read),
    Format("a log of vllm serve", vllm_log.matches, vllm_log.read),
)


def read(path: Path | str, run: str | None = None) -> Imported:
    """The measurements at `path`, a file of any form in `FORMATS` or a folder.

    `run`: which one, where the file holds several; its number from 0 on, or its name.
    Raises InputError on a form that is not known, a file that is not whole, or several runs and no `run`.
    """
    source = Source.open(Path(path), run)
    for form in FORMATS:
        if form.matches(source):
            return form.read(source)
    kind = "folder" if source.is_folder else "file"
    known = ", ".join(form.name for form in FORMATS)
    raise InputError(f"{path}: is a {kind} of no form that is read; known: {known}")
