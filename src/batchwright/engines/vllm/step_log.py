"""A stat logger for vLLM that writes what every step did, in the columns of a run folder's `steps`.

    BATCHWRIGHT_STEP_LOG=logs vllm serve MODEL --enable-logging-iteration-details

vLLM finds it by its entry point; it writes nothing unless the variable names a directory, and then
one CSV file per engine.  Times are seconds since the log was opened, as the front end sees them.  A
step starts when the one before has ended, or when a request comes to an engine that had none.

`prefill_tokens` and `num_decodes` are vLLM's context tokens and generation requests: a preempted
request that recomputes is one of the latter.  A preemption is counted when its request next gets a
token: only then does vLLM tell.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TextIO

from vllm.v1.metrics.loggers import StatLoggerBase

from batchwright.errors import InputError

PLACE: Final = "BATCHWRIGHT_STEP_LOG"
COLUMNS: Final = (
    "step", "start_s", "end_s", "prefill_tokens", "num_decodes", "running", "waiting", "preempted",
    "finished", "free_blocks", "num_chunks",
)  # fmt: skip


class StepLog(StatLoggerBase):
    """One engine's steps.  `clock`: seconds.

    Raises InputError if the directory cannot be written, or vLLM does not tell what steps did.
    """

    clock: Callable[[], float] = staticmethod(time.monotonic)

    def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
        place = os.environ.get(PLACE)
        self._cache = vllm_config.cache_config
        self._file: TextIO | None = None
        self._begin = self._end = self.clock()
        self._was_idle = True
        self._num_steps = 0
        self._preempted = self._finished = 0
        if place:
            _check(vllm_config.observability_config.enable_logging_iteration_details)
            self._file = _opened(Path(place), engine_index)

    def record(
        self,
        scheduler_stats: Any,
        iteration_stats: Any,
        mm_cache_stats: Any = None,
        engine_idx: int = 0,
    ) -> None:
        if self._file is None:
            return
        now, was_idle = self.clock(), self._was_idle
        waited = 0.0  # by the request that came first, if it got its first token now
        if iteration_stats is not None:
            self._preempted += iteration_stats.num_preempted_reqs
            self._finished += len(iteration_stats.finished_requests)
            waited = max(iteration_stats.time_to_first_tokens_iter, default=0.0)
        if scheduler_stats is None:
            return
        details = scheduler_stats.iteration_details
        if details is not None and not details.is_dummy:
            took = max(waited, details.elapsed_ms / 1000)
            start = max(self._end, now - took) if was_idle else self._end
            self._write(self._file, (start, now), scheduler_stats, details)
        self._end = now
        self._was_idle = scheduler_stats.num_running_reqs + _num_waiting(scheduler_stats) == 0

    def _write(self, file: TextIO, times: tuple[float, float], stats: Any, details: Any) -> None:
        usable = self._cache.num_gpu_blocks - 1  # without the null block
        row = (
            self._num_steps,
            *(f"{seconds - self._begin:.6f}" for seconds in times),
            details.num_ctx_tokens,
            details.num_generation_requests,
            stats.num_running_reqs,
            _num_waiting(stats),
            self._preempted,
            self._finished,
            usable - round(stats.kv_cache_usage * usable),
            details.num_ctx_requests,
        )
        print(*row, sep=",", file=file)
        self._num_steps += 1
        self._preempted = self._finished = 0

    def log(self) -> None:
        """vLLM calls this every few seconds."""
        if self._file is not None:
            self._file.flush()

    def log_engine_initialized(self) -> None:
        """Nothing to say."""


def _num_waiting(stats: Any) -> int:
    waiting: int = stats.num_waiting_reqs + stats.num_skipped_waiting_reqs
    return waiting


def _check(tells: bool) -> None:
    if not tells:
        raise InputError(
            f"{PLACE} is set, but vLLM does not tell what its steps did; start it with "
            "--enable-logging-iteration-details, or unset the variable"
        )


def _opened(folder: Path, engine: int) -> TextIO:
    """A new file, closed when Python ends."""
    name = f"steps-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-engine{engine}.csv"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / name).open("w", encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"{PLACE}: {folder} cannot be written ({error.strerror}); give another directory"
        ) from None
    atexit.register(file.close)
    print(*COLUMNS, sep=",", file=file)
    return file
