"""What must hold in a vLLM log, and by how much it does not.

tokens of a step  <= max_num_batched_tokens      requests of a step <= max_num_seqs
sum of elapsed    <= time between the first line and the last one of each engine
KV tokens         =  blocks x block size         max concurrency = KV tokens / max_model_len
tokens of steps   =  throughput x interval, where the log has both
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from batchwright.imported.result import Columns, Finding
from batchwright.imported.vllm_iterations import Iteration, missing
from batchwright.imported.vllm_startup import GIB, StartUp
from batchwright.metrics import Numbers

IDLE: Final = 2.0  # seconds without a line, in which nobody ran
NEAR: Final = 0.01  # relative
BUSY: Final = 0.5  # share of a busy time under which steps say little


def checks(
    steps: list[Iteration], columns: Columns | None, series: Columns | None, start: StartUp, is_fine: bool
) -> Iterator[Finding]:
    """All that is odd or wrong."""
    if columns is not None:
        yield from _limits(columns, start)
        yield from _gaps(steps)
        yield from _clock(steps, is_fine)
    yield from _memory(start)
    if columns is not None and series is not None:
        yield from _throughput(columns, series)
    if series is not None and "preempted" not in series:
        yield from _silent(columns, series, start)


def _limits(columns: Columns, start: StartUp) -> Iterator[Finding]:
    tokens = columns["prefill_tokens"] + columns["decode_tokens"]
    requests = columns["num_chunks"] + columns["num_decodes"]
    for what, values, key in (
        ("tokens", tokens, "max_num_batched_tokens"), ("requests", requests, "max_num_seqs")
    ):  # fmt: skip
        most = start.found.get(key)
        if most is not None and len(values) and values.max() > most:
            over = int((values > most).sum())
            yield Finding(
                text=f"{over} of {len(values)} steps have more {what} than {key} {most}, up to "
                f"{values.max()}: "
                "the start-up lines are of another server",
                is_wrong=True,
            )


def _gaps(steps: list[Iteration]) -> Iterator[Finding]:
    lacking = missing(steps)
    if lacking:
        yield Finding(
            text=f"{lacking} of {len(steps) + lacking} steps are missing, by their numbers: the log "
            "is not whole",
            is_wrong=False,
        )


def _clock(steps: list[Iteration], is_fine: bool) -> Iterator[Finding]:
    """Elapsed times against the clock of the log."""
    for engine in sorted({step.engine for step in steps}):
        rows = [step for step in steps if step.engine == engine and step.told is not None]
        if len(rows) < 2:
            continue
        told = np.array([row.told for row in rows], float)
        took = np.array([row.elapsed for row in rows])
        if (np.diff(told) < 0).any():
            back = float(-np.diff(told).min())
            yield Finding(
                text=f"engine {engine}: the clock of the log runs back by {back:.3g} s", is_wrong=True
            )
            continue
        yield from _shares(engine, told, took, 0.0 if is_fine else 1.0)


def _shares(engine: int, told: Numbers, took: Numbers, blur: float) -> Iterator[Finding]:
    gaps = np.diff(told)
    span, busy = float(gaps.sum()), float(gaps[gaps < IDLE].sum())
    total = float(took[1:].sum())
    if total > (span + blur) * (1 + NEAR):
        yield Finding(
            text=f"engine {engine}: steps take {total:.4g} s, but only {span:.4g} s pass between "
            "the first line "
            "and the last: they overlap, so their times are not those of one step",
            is_wrong=True,
        )
    elif busy > 10 and total < BUSY * busy:
        yield Finding(
            text=f"engine {engine}: steps take {total / busy:.0%} of the {busy:.4g} s in which "
            "lines follow each "
            "other: the rest is scheduling, or waiting for requests",
            is_wrong=False,
        )


def _memory(start: StartUp) -> Iterator[Finding]:
    found = start.found
    tokens, length = found.get("kv_tokens"), found.get("max_model_len")
    blocks, size = found.get("num_gpu_blocks"), found.get("block_size")
    if tokens is not None and blocks is not None and size is not None and tokens != int(blocks) * int(size):
        yield Finding(
            text=f"KV cache size is {tokens} tokens, but {blocks} blocks of {size} are "
            f"{int(blocks) * int(size)}: "
            "the model has several kinds of KV cache",
            is_wrong=False,
        )
    times = found.get("max_concurrency")
    if tokens is not None and length is not None and times is not None:
        expected = int(tokens) / int(length)
        if abs(float(times) - expected) > 0.005 + NEAR * expected:
            yield Finding(
                text=f"maximum concurrency is {times}x, but {tokens} tokens / {length} are {expected:.2f}x: "
                "not all layers keep the whole context",
                is_wrong=False,
            )
    memory = found.get("kv_gib")
    if tokens and memory and blocks is None:
        each = float(memory) * GIB / int(tokens) / 1024
        yield Finding(text=f"a token takes {each:.4g} KiB of KV cache on each GPU", is_wrong=False)


def _throughput(columns: Columns, series: Columns) -> Iterator[Finding]:
    """Tokens by the steps against tokens by the periodic lines, over the same time."""
    times = series["time_s"]
    if len(times) < 2 or np.isnan(times).any() or len(np.unique(series["engine"])) > 1:
        return
    said = float((series["output_tokens_per_s"][1:] * np.diff(times)).sum())
    counted = float((columns["num_decodes"]).sum())
    if said > 2 * counted > 0:
        yield Finding(
            text=f"the periodic lines tell of {said:.0f} output tokens, the steps of {counted:.0f}: "
            "steps are missing",
            is_wrong=False,
        )


def _silent(columns: Columns | None, series: Columns, start: StartUp) -> Iterator[Finding]:
    """Signs of preemptions that the log does not count."""
    if columns is None or start.speculates:
        return
    again = int((columns["decode_tokens"] - columns["num_decodes"]).sum())
    if again > 0:
        yield Finding(
            text=f"{again} tokens are computed again after a preemption; the log does not count preemptions, "
            "vllm:num_preemptions_total of /metrics does",
            is_wrong=False,
        )
