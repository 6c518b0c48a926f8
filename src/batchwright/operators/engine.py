"""Operators of one model on one GPU under one engine, answered by a package with measurements.

The package lists the operators of a step with prompt tokens, and those of one without.  One that takes
the same time for the same number of tokens, however they lie in requests, works on every token alike;
the others are attention.  The output head is the one with `logits` in its name.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from batchwright.errors import BatchwrightError, InputError
from batchwright.operators.extent import measured_context
from batchwright.operators.names import kv_mode, weights_mode
from batchwright.operators.package import Package, quiet

MS: Final = 1e-3  # the package counts in milliseconds
HEAD: Final = "logits"
ALIKE: Final = 512  # tokens that are laid out in several ways, to tell attention from the rest
KINDS: Final = {"silicon": "measured", "mixed": "measured in part"}  # what the package says of a time


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is asked for, in the package's own names.  `version` None: its usual one."""

    gpu: str
    model: str
    tp: int
    ep: bool
    engine: str
    version: str | None
    quantization: str | None
    kv_cache_dtype: str


class MeasuredEngine:
    """The `Operators` of what is asked for, and times of whole steps.  Raises InputError."""

    def __init__(self, package: Package, asked: Asked) -> None:
        self._package, self.asked = package, asked
        with quiet(package.module):
            with _as_path(package, asked.model) as model:
                self._handle = self._ask(lambda: self._compiled(model))
            prompts, rows = self._names(self._prompt_times), self._names(self._row_times)
            self._head = [i for i, name in rows.items() if HEAD in name]
            prompts = {i: name for i, name in prompts.items() if HEAD not in name}
            self._tokens = [i for i in prompts if is_alike(self._prompt_layouts(i))]
            self._attention = [i for i in prompts if i not in self._tokens]
            layers = [i for i in rows if i not in self._head]
            self._row_tokens = [i for i in layers if is_alike(self._row_layouts(i))]
            self._row_attention = [i for i in layers if i not in self._row_tokens]
            self.is_split = any(self.shared(n) != self.decodes(n) for n in (1, 32, 500, 4000))
        self.context_tokens = measured_context(
            package, asked.gpu, asked.engine, str(asked.version), asked.model, asked.tp
        )

    # --- operators ------------------------------------------------------------

    def shared(self, tokens: int) -> float:
        return total(self._prompt_times(self._tokens, 1, tokens, 0))

    def decodes(self, tokens: int) -> float:
        return total(self._row_times(self._row_tokens, tokens, 64))

    def head(self, rows: int) -> float:
        return total(self._row_times(self._head, rows, 64))

    def prefill(self, chunks: int, tokens: int, past: int) -> float:
        return total(self._prompt_times(self._attention, chunks, tokens, past))

    def decode(self, rows: int, context: int) -> float:
        return total(self._row_times(self._row_attention, rows, context + 1))

    # --- whole steps ----------------------------------------------------------

    def prompts(self, chunks: int, tokens: int, past: int) -> float:
        """Seconds of a step of so many chunks that end their prompts, as the package itself adds it up."""
        found = self._ask(lambda: self._handle.predict_prefill_latency(chunks, past + tokens, past))
        return MS * float(found)

    def rows(self, rows: int, context: int) -> float:
        """Seconds of a step of so many decodes alone, as the package itself adds it up."""
        return MS * float(self._ask(lambda: self._handle.predict_decode_latency(rows, context, 2)))

    def kinds(self) -> dict[str, float]:
        """Shares of the time of 32 decodes of 1024 tokens and of a prompt of 1024, by how it is known."""
        found: dict[str, float] = {}
        chosen = self._row_tokens + self._row_attention + self._head
        times = self._row_times(chosen, 32, 1025)
        times = times + self._prompt_times(self._tokens + self._attention, 1, 1024, 0)
        for _, time, _, kind in times:
            name = KINDS.get(kind, "estimated by the package")
            found[name] = found.get(name, 0.0) + time
        everything = sum(found.values())
        return {name: time / everything for name, time in sorted(found.items(), key=lambda item: -item[1])}

    # --- the package ----------------------------------------------------------

    def _compiled(self, model: str) -> Any:
        asked, weights = self.asked, weights_mode(self.asked.quantization)
        experts = {"moe_tp_size": 1, "moe_ep_size": asked.tp} if asked.ep else {"moe_tp_size": asked.tp}
        return self._package.load("engine").EngineHandle.compile(
            model,
            asked.gpu,
            asked.engine,
            backend_version=asked.version,
            tp_size=asked.tp,
            gemm_quant_mode=weights,
            moe_quant_mode=weights,
            kvcache_quant_mode=kv_mode(asked.kv_cache_dtype),
            **experts,
        )

    def _prompt_times(self, chosen: list[int], chunks: int = 1, tokens: int = 64, past: int = 0) -> list[Any]:
        evaluate = self._handle.evaluate_context_ops
        return list(self._ask(lambda: evaluate(chosen, batch_size=chunks, s=tokens, prefix=past)))

    def _row_times(self, chosen: list[int], rows: int = 1, context: int = 64) -> list[Any]:
        """`context`: with the token that is computed."""
        evaluate = self._handle.evaluate_generation_ops
        return list(self._ask(lambda: evaluate(chosen, batch_size=rows, s=context)))

    def _names(self, times: Callable[[list[int]], list[Any]]) -> dict[int, str]:
        """Names of the operators of a kind of step, by their place."""
        names: dict[int, str] = {}
        while True:
            try:
                names[len(names)] = str(times([len(names)])[0][0])
            except InputError as error:
                if "out of range" in str(error):
                    return names
                raise

    def _prompt_layouts(self, i: int) -> list[float]:
        layouts = ((1, ALIKE, 0), (8, ALIKE // 8, 0), (1, ALIKE, 2048), (8, ALIKE // 8, 64))
        return [total(self._prompt_times([i], *layout)) for layout in layouts]

    def _row_layouts(self, i: int) -> list[float]:
        return [total(self._row_times([i], 32, context)) for context in (2, 200, 5000)]

    def _ask(self, question: Callable[[], Any]) -> Any:
        """The answer.  The package's own errors are of many types; each becomes one line of ours."""
        try:
            return question()
        except BatchwrightError:
            raise
        except Exception as error:
            text = " ".join(str(error).split()).replace(str(self._package.folder), "...")
            asked = self.asked
            raise InputError(
                f"{self._package} cannot answer for {asked.model} on {asked.tp} x {asked.gpu} under "
                f"{asked.engine}: {text[:300]}"
            ) from None


def is_alike(times: list[float]) -> bool:
    return max(times) - min(times) <= 1e-9 * max(times)


def total(times: list[Any]) -> float:
    """Seconds of operators, from what the package says of each."""
    return MS * float(sum([time for _, time, _, _ in times]))


@contextmanager
def _as_path(package: Package, model: str) -> Iterator[str]:
    """What the package opens the model by; of one whose file it has but not in its list, a folder with it."""
    file = package.folder / "model_configs" / f"{model.replace('/', '--', 1)}_config.json"
    if model in package.load("common").DefaultHFModels or not file.is_file():
        yield model
        return
    with TemporaryDirectory() as folder:
        shutil.copyfile(file, Path(folder) / "config.json")
        yield folder
