"""What a file of measurements says of steps: what each computed, and what it took.

Run folders say all of it.  Logs of engines leave out some; what is left out is worked out where the
rest allows it, and told, and else the fit does without that term.

    context_tokens   from the KV blocks in use: a request's last block is half full on average, and the KV
                     of prompts that are being filled is counted with it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from batchwright.errors import InputError
from batchwright.imported import Imported, read
from batchwright.metrics import Numbers

WORK: Final = ("prefill_tokens", "num_chunks", "num_decodes", "padded_rows", "context_tokens", "past_tokens",
               "prefill_attention")  # fmt: skip
NEEDED: Final = ("prefill_tokens", "num_decodes")
SERVER: Final = ("engine", "model", "gpu", "tp", "pp", "dp")  # one fit is of one
BLOCK_SIZE: Final = 16  # tokens of a KV block, where a log does not say


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Steps of one or more files, in order of time.

    work      columns of `WORK` that the files have, and `tokens`, all of a step
    seconds   of the device; with the host's, where the files do not have it apart
    host      seconds of scheduler and update, apart; None: not told
    notes     what was left out or worked out
    sources   file, form and number of steps of each
    about     what the files say of the server, as in `Imported`
    """

    work: Mapping[str, Numbers]
    seconds: Numbers
    host: Numbers | None = None
    notes: tuple[str, ...] = ()
    sources: tuple[tuple[str, str, int], ...] = ()
    about: Mapping[str, str | int | float | bool] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.seconds)


def read_steps(paths: Sequence[Path], run: str | None = None) -> Steps:
    """The steps of all files, of any form that `import` reads, together.

    `run`: which one, of files that hold several.  Raises InputError on a file without steps.
    """
    if not paths:
        raise InputError("no file is given; give a run folder, or a log of steps")
    return together([steps_of(read(path, run)) for path in paths])


def steps_of(found: Imported) -> Steps:
    """Raises InputError if there are no steps, or they do not say what they computed."""
    columns = found.steps
    if columns is None:
        raise InputError(f"{found.file}: has no steps ({found.form}); give a log of steps or a run folder")
    lacking = [name for name in NEEDED if name not in columns]
    if lacking:
        raise InputError(f"{found.file}: its steps do not say {lacking[0]}; give a log that does")
    wrong = [finding.text for finding in found.findings if finding.is_wrong]
    if wrong:
        raise InputError(f"{found.file}: {wrong[0]}; a fit would rest on it")
    work, notes = _work(found)
    seconds, host = _seconds(columns)
    told = (*(finding.text for finding in found.findings), *notes)
    steps = Steps(work=work, seconds=seconds, host=host, notes=told, about=found.about)
    kept = _without_empty(found.file, steps)
    return replace(kept, sources=((found.file, found.form, len(kept)),))


def _work(found: Imported) -> tuple[dict[str, Numbers], list[str]]:
    columns, notes = dict(found.steps or {}), []
    if "context_tokens" not in columns:
        context = _context_of_blocks(found)
        if context is not None:
            columns["context_tokens"] = context
            notes.append(
                f"{found.file}: context_tokens is worked out from the KV blocks in use, with the last block "
                "of each request half full"
            )
    if "padded_rows" in columns and columns["padded_rows"].any():
        notes.append(
            f"{found.file}: prompts of padded batches are as long as the longest, but the log has their own "
            "tokens: what padding takes is counted to those"
        )
    work: dict[str, Numbers] = {}
    for name in WORK:
        if name in columns:
            work[name] = np.asarray(columns[name], np.float64)
    decoded = columns.get("decode_tokens", columns["num_decodes"])
    work["tokens"] = work["prefill_tokens"] + decoded + work.get("padded_rows", 0.0)
    return work, notes


def _context_of_blocks(found: Imported) -> Numbers | None:
    """KV tokens of all requests with a seat; None if the log does not say what is in use."""
    columns, block = found.steps or {}, float(found.about.get("block_size", BLOCK_SIZE))
    running = columns.get("running", columns["num_decodes"])
    if "free_blocks" in columns:
        used = columns["free_blocks"].max() - columns["free_blocks"]
    elif "kv_usage" in columns and "num_gpu_blocks" in found.about:
        used = columns["kv_usage"] * float(found.about["num_gpu_blocks"])
    else:
        return None
    tokens: Numbers = np.maximum(used * block - running * block / 2, 0.0)
    return tokens


def _seconds(columns: Mapping[str, Numbers]) -> tuple[Numbers, Numbers | None]:
    """Of the device and of the host; of both together, None, where they are not apart."""
    if "model_s" in columns:
        host = columns.get("schedule_s", 0.0) + columns.get("update_s", 0.0)
        is_told = "schedule_s" in columns or "update_s" in columns
        return np.asarray(columns["model_s"], np.float64), np.asarray(host, np.float64) if is_told else None
    return np.asarray(columns["end_s"] - columns["start_s"], np.float64), None


def _without_empty(file: str, steps: Steps) -> Steps:
    """Without steps that compute nothing, and those that took no time: a clock too coarse for them."""
    is_empty = steps.work["tokens"] == 0
    took_none = ~is_empty & ~(steps.seconds > 0)
    kept = _some(steps, np.flatnonzero(~is_empty & ~took_none))
    if not took_none.any():
        return kept
    note = f"{file}: {int(took_none.sum())} of {len(steps)} steps took no time, and are left out"
    return replace(kept, notes=(*kept.notes, note))


def thinned(steps: Steps, most: int) -> Steps:
    """At most so many of the steps, evenly spaced, with a note."""
    every = -(-len(steps) // most)
    if every == 1:
        return steps
    note = f"of {len(steps):,} steps, one in {every} is fitted, and errors are of those"
    return replace(_some(steps, np.arange(0, len(steps), every)), notes=(*steps.notes, note))


def _some(steps: Steps, rows: npt.NDArray[np.intp]) -> Steps:
    return replace(
        steps,
        work={name: values[rows] for name, values in steps.work.items()},
        seconds=steps.seconds[rows],
        host=None if steps.host is None else steps.host[rows],
    )


def together(parts: Sequence[Steps]) -> Steps:
    """All of them, in order, with the columns that all of them have.

    Raises InputError if one is given twice, or if they tell of different servers.
    """
    names = [name for name in (*WORK, "tokens") if all(name in part.work for part in parts)]
    _check_one_server(parts)
    hosts = [part.host for part in parts if part.host is not None]
    about = dict(parts[0].about)
    for part in parts[1:]:
        about = {name: value for name, value in about.items() if part.about.get(name) == value}
    return Steps(
        work={name: np.concatenate([part.work[name] for part in parts]) for name in names},
        seconds=np.concatenate([part.seconds for part in parts]),
        host=np.concatenate(hosts) if len(hosts) == len(parts) else None,
        notes=tuple(note for part in parts for note in part.notes),
        sources=tuple(source for part in parts for source in part.sources),
        about=about,
    )


def _check_one_server(parts: Sequence[Steps]) -> None:
    """A fit that sees the steps it is tested on, or those of two machines, is none."""
    files = [Path(source[0]).resolve() for part in parts for source in part.sources]
    for place, file in enumerate(files):
        if file in files[:place]:
            raise InputError(f"{file}: is given twice; a fit would be tested on what it has seen")
    for name in SERVER:
        told = {part.about[name]: None for part in parts if name in part.about}
        if len(told) > 1:
            values = " and ".join(map(str, told))
            raise InputError(f"the files are of several servers, with {name} {values}; fit each by itself")
