"""The log of a vLLM server: start-up lines, steps, the state every few seconds, all in one file.

`steps` come from `--enable-logging-iteration-details` (`vllm_iterations`), `series` from the periodic line
(`vllm_state`), `about` and memory from the start (`vllm_startup`).  Any of them may be missing, and
any other lines may stand between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np

from batchwright.errors import InputError
from batchwright.imported import vllm_iterations, vllm_state
from batchwright.imported.log_lines import lines
from batchwright.imported.result import About, Finding, Imported
from batchwright.imported.source import Source
from batchwright.imported.vllm_checks import checks
from batchwright.imported.vllm_iterations import Iteration
from batchwright.imported.vllm_startup import BLOCK_SIZE, WORDS, StartUp

NAME: Final = "vLLM server log"
_V0_PREEMPTED: Final = "is preempted by PreemptionMode."
_WANTED: Final = (vllm_iterations.WORD, vllm_state.WORD, _V0_PREEMPTED, *WORDS)
_SIGNS: Final = re.compile(
    r"Iteration\(\d+\): \d+ context requests|Avg prompt throughput: |KV cache size: [\d,]+ tokens"
    r"|LLM engine \(v\d|vLLM API server version|# (?:GPU|cuda) blocks: \d|Available KV cache memory: "
)


def matches(source: Source) -> bool:
    """Does a line of the text look like one of vLLM's?"""
    return _SIGNS.search(source.text) is not None


def read(source: Source) -> Imported:
    """What the log says.  Raises InputError if it says nothing of a server."""
    log = _Log(source)
    if not (log.steps or log.samples or log.start.found):
        raise InputError(
            f"{source.name}: has no whole line of vLLM on its start, its steps or its state; give "
            "all of the log"
        )
    try:
        steps, starts = vllm_iterations.last_start(log.steps)
    except InputError as error:
        raise InputError(f"{source.name}: {error}") from None
    about = log.start.about()
    columns = vllm_iterations.columns(steps, log.start.kv_tokens) if steps else None
    series = vllm_state.columns(log.samples) if log.samples else None
    return Imported(
        file=source.name,
        form=_form(about),
        conventions=tuple(_conventions(log, steps, about)),
        findings=(
            *_restarts(starts, len(steps)),
            *_cut(log),
            *checks(steps, columns, series if starts == 1 else None, log.start, log.is_fine),
        ),
        about=about,
        steps=columns,
        series=series,
        totals=_totals(log, steps),
    )


class _Log:
    """Its lines, sorted by what they tell."""

    def __init__(self, source: Source) -> None:
        self.start = StartUp()
        self.steps: list[Iteration] = []
        self.samples: list[vllm_state.Sample] = []
        self.num_cut = self.preemptions = 0
        self.is_fine = False
        for line in lines(source.text, _WANTED):
            if vllm_iterations.WORD in line.text:
                step = vllm_iterations.iteration(line)
                self._keep(self.steps, step)
                self.is_fine |= step is not None and line.is_fine
            elif vllm_state.WORD in line.text:
                self._keep(self.samples, vllm_state.sample(line))
            elif _V0_PREEMPTED in line.text:
                self.preemptions += 1
            else:
                self.start.take(line.text)

    def _keep(self, kept: list, one: object) -> None:  # type: ignore[type-arg]
        if one is None:
            self.num_cut += 1
        else:
            kept.append(one)


def _form(about: About) -> str:
    version = about.get("engine_version")
    return NAME if version is None else f"{NAME}, version {version}"


def _conventions(log: _Log, steps: list[Iteration], about: About) -> Iterator[str]:
    if steps:
        yield "a step's time is that for which the engine waited for the device; scheduling comes on top"
        yield f"decode_tokens are more than num_decodes where {_why_more(log)}"
        if not log.is_fine:
            yield "the log tells whole seconds: a step's length is exact, its place within the second is not"
    if log.samples:
        yield "throughputs are means since the line before; running, waiting and kv_usage are of one instant"
    if log.start.assumes_block_size:
        yield (
            f"num_gpu_blocks is KV tokens / {BLOCK_SIZE}, vLLM's block size on a GPU: the log has "
            "no --block-size"
        )


def _why_more(log: _Log) -> str:
    if log.start.speculates:
        return "drafts are verified, or a request that was preempted computes again"
    return "a request that was preempted computes its tokens again"


def _restarts(starts: int, count: int) -> Iterator[Finding]:
    if starts > 1:
        yield Finding(
            text=f"the log holds {starts} starts of the engine; the {count} steps of the last one are read",
            is_wrong=False,
        )


def _cut(log: _Log) -> Iterator[Finding]:
    if log.num_cut:
        lines = "line is" if log.num_cut == 1 else "lines are"
        yield Finding(text=f"{log.num_cut} {lines} cut, and left out", is_wrong=False)


def _totals(log: _Log, steps: list[Iteration]) -> dict[str, float]:
    found = log.start.totals()
    real = [step for step in steps if not step.is_dummy]
    if steps:
        found |= {
            "num_steps": len(real),
            "num_dummy_steps": len(steps) - len(real),
            "step_seconds_s": sum(step.elapsed for step in real),
            "prefill_tokens": sum(step.prefill for step in real),
            "decode_tokens": sum(step.decoded for step in real),
        }
    told = [one.values["preempted"] for one in log.samples if not np.isnan(one.values["preempted"])]
    if told or log.preemptions:
        found["preemptions"] = sum(told) or log.preemptions
    return {key: float(value) for key, value in found.items()}
