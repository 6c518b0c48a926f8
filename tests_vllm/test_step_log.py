"""The stat logger: what it writes, when it writes nothing, what it refuses."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from vllm.v1.metrics.loggers import load_stat_logger_plugin_factories
from vllm.v1.metrics.stats import IterationStats, SchedulerIterationDetails, SchedulerStats

from batchwright.engines.vllm.step_log import COLUMNS, PLACE, StepLog
from batchwright.errors import InputError

BLOCKS = 101  # vLLM's null block included


class Clocked(StepLog):
    clock = staticmethod(lambda: Clocked.time)
    time = 0.0


def config(tells: bool = True) -> SimpleNamespace:
    return SimpleNamespace(
        cache_config=SimpleNamespace(num_gpu_blocks=BLOCKS),
        observability_config=SimpleNamespace(enable_logging_iteration_details=tells),
    )


def stats(
    running: int, waiting: int, used: int, prefill: int = 0, chunks: int = 0, decodes: int = 0
) -> SchedulerStats:
    """After a step; after one that ran nothing, if it has neither prompt tokens nor decodes."""
    details = None
    if prefill or decodes:
        details = SchedulerIterationDetails(0, chunks, prefill, decodes, decodes, elapsed_ms=2.0)
    return SchedulerStats(
        num_running_reqs=running,
        num_waiting_reqs=waiting,
        kv_cache_usage=used / (BLOCKS - 1),
        iteration_details=details,
    )


def tokens(*ttft: float, finished: int = 0) -> IterationStats:
    found = IterationStats()
    found.time_to_first_tokens_iter = list(ttft)
    found.finished_requests = [None] * finished
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(PLACE, str(tmp_path / "logs"))
    Clocked.time = 100.0
    return tmp_path / "logs"


def rows(log: StepLog, folder: Path) -> list[dict[str, float]]:
    log.log()
    (file,) = folder.iterdir()
    head, *lines = file.read_text().splitlines()
    assert tuple(head.split(",")) == COLUMNS
    return [dict(zip(COLUMNS, map(float, line.split(",")), strict=True)) for line in lines]


def record(log: StepLog, at: float, seen: SchedulerStats, iteration: IterationStats | None = None) -> None:
    Clocked.time = 100.0 + at
    log.record(seen, iteration)


def test_vllm_finds_it_by_its_entry_point() -> None:
    assert StepLog in load_stat_logger_plugin_factories()


def test_every_step_is_a_row(folder: Path) -> None:
    log = Clocked(config())
    record(log, 1.0, stats(2, 1, used=10, prefill=300, chunks=2))
    record(log, 1.5, stats(2, 1, used=10, decodes=2), tokens(finished=1))
    first, second = rows(log, folder)
    assert (first["prefill_tokens"], first["num_chunks"], first["num_decodes"]) == (300, 2, 0)
    assert (first["running"], first["waiting"], first["free_blocks"]) == (2, 1, 90)
    assert (second["step"], second["num_decodes"], second["finished"]) == (1, 2, 1)
    assert (second["start_s"], second["end_s"]) == (1.0, 1.5)


def test_a_step_of_an_idle_engine_starts_when_its_request_comes(folder: Path) -> None:
    log = Clocked(config())
    record(log, 1.0, stats(1, 0, used=1, prefill=10, chunks=1), tokens(0.25))
    record(log, 1.5, stats(0, 0, used=0, decodes=1), tokens(finished=1))
    record(log, 9.0, stats(1, 0, used=1, prefill=10, chunks=1), tokens(0.125))
    assert [row["start_s"] for row in rows(log, folder)] == [0.75, 1.0, 8.875]


def test_a_poll_that_runs_nothing_is_no_row_but_ends_the_wait(folder: Path) -> None:
    log = Clocked(config())
    record(log, 1.0, stats(0, 3, used=0, decodes=1), tokens(finished=1))
    for at in (1.25, 1.5):
        record(log, at, stats(0, 3, used=0))
    record(log, 2.0, stats(3, 0, used=3, prefill=30, chunks=3), tokens(1.5, 1.0, 0.75))
    assert [(row["start_s"], row["end_s"]) for row in rows(log, folder)[1:]] == [(1.5, 2.0)]


def test_without_the_variable_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PLACE, raising=False)
    monkeypatch.chdir(tmp_path)
    log = StepLog(config(tells=False))
    log.record(stats(1, 0, used=1, decodes=1), tokens())
    log.log()
    assert list(tmp_path.iterdir()) == []


def test_a_vllm_that_does_not_tell_what_steps_did_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="--enable-logging-iteration-details"):
        StepLog(config(tells=False))


def test_a_place_that_cannot_be_written_is_refused(folder: Path) -> None:
    folder.write_text("a file")
    with pytest.raises(InputError, match="cannot be written"):
        StepLog(config())
