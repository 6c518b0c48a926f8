"""llama.cpp as an engine: any GGUF, slots instead of blocks.

Each sequence has a slot: one of llama.cpp's sequence ids with `max_model_len` KV tokens of its own.
llama.cpp cuts a step into passes over neighbouring slots with equally many tokens, so a new sequence
takes the lowest free slot and the rows go in by slot.  A chunk beside decodes is a pass of its own.

What lies behind a row's `past` is not its sequence's (padding) and is forgotten before the row runs.
"""

from __future__ import annotations

import ctypes as c
import os
import sys
import tempfile
import time
import weakref
from heapq import heappop, heappush
from pathlib import Path
from typing import Final

import numpy as np

from batchwright.engines.engine import Capacity
from batchwright.engines.libllama import Batch, LibLlama, open_library
from batchwright.engines.next_token import sample
from batchwright.engines.sequence import Sequence
from batchwright.engines.work import Work
from batchwright.errors import EngineError, InputError, LimitError, nearest

PASS_TOKENS: Final = 512  # most tokens of one pass
EXACT_PASS_TOKENS: Final = 60  # attention takes 64 and more tokens of one sequence by another sum
FILE_TYPES: Final = {"f16": 1, "q4_0": 2, "q8_0": 7, "bf16": 32}  # llama.cpp's `llama_ftype`


class LlamaCpp:
    """One GGUF in one llama.cpp context, on the CPU."""

    capacity: Capacity

    def __init__(self, library: LibLlama, model: int, context: int, capacity: Capacity) -> None:
        """Takes `model` and `context`, and frees both when it goes."""
        self.capacity = capacity
        self.library = library
        calls = library.calls
        self._calls = calls
        self._context = context
        self._memory = calls.llama_get_memory(context)
        self._vocab_size = calls.llama_vocab_n_tokens(calls.llama_model_get_vocab(model))
        num_slots = calls.llama_n_seq_max(context)
        self._slot_tokens = calls.llama_n_ctx_seq(context)
        self._free_slots = list(range(num_slots))  # a heap
        self._held = [0] * num_slots  # KV tokens in each slot
        self._slot_ids = np.arange(num_slots, dtype=np.int32)
        self._ones = np.ones(calls.llama_n_batch(context), np.int32)
        self.close = weakref.finalize(self, _free, calls, model, context)

    @classmethod
    def load(
        cls,
        gguf: str | Path,
        *,
        max_num_seqs: int,
        max_model_len: int | None = None,
        threads: int | None = None,
        exact: bool = False,
        library: str | Path | None = None,
    ) -> LlamaCpp:
        """Load `gguf` with `max_num_seqs` slots of `max_model_len` tokens.

        max_model_len  None: the length that the model was trained for
        threads        None: the processor's cores but one.  Threads of llama.cpp wait by spinning: on a
                       busy machine more threads than idle cores are many times slower
        exact          with quantised weights and greedy, the tokens of a sequence do not depend on the steps
                       that it is cut into, nor on its company; shorter passes, so prompts take longer
        library        file of a libllama; None: that of an installed package, or the system's

        Raises EngineError, and LimitError on more than the model or llama.cpp can have.
        """
        threads = default_threads() if threads is None else threads
        _check_limits(max_num_seqs=max_num_seqs, max_model_len=max_model_len, threads=threads)
        opened = open_library(library)
        _check_file(Path(gguf))
        model = opened.load_model(Path(gguf))
        try:
            longest = _settle_length(opened, model, max_model_len, gguf)
            context = opened.new_context(
                model, max_num_seqs, longest, EXACT_PASS_TOKENS if exact else PASS_TOKENS
            )
        except BaseException:
            opened.calls.llama_model_free(model)
            raise
        opened.calls.llama_set_n_threads(context, threads, threads)
        capacity = Capacity(
            block_size=None,
            num_kv_blocks=None,
            max_num_seqs=max_num_seqs,
            max_model_len=longest,
            shares_prefixes=False,
        )
        return cls(opened, model, context, capacity)

    def now(self) -> float:
        return time.perf_counter()

    def sleep(self, until: float) -> None:
        time.sleep(max(0.0, until - self.now()))

    def run(self, work: Work) -> list[int]:
        """Run one step; the sampled token ids.  Raises EngineError; the next step may run then."""
        for sequence in work.released:
            self._release(sequence)
        if not work.rows:
            return []
        starts = [self._start(work, row) for row in range(len(work.rows))]
        try:
            self._decode(work, starts)
        except EngineError:
            for sequence, start in zip(work.rows, starts, strict=True):
                self._forget(sequence.slot, start)
            raise
        for sequence, start, count in zip(work.rows, starts, work.counts, strict=True):
            self._held[sequence.slot] = start + count
        return self._sample(work)

    def _release(self, sequence: Sequence) -> None:
        if sequence.slot < 0:  # it never ran
            return
        self._forget(sequence.slot, 0)
        heappush(self._free_slots, sequence.slot)
        sequence.slot = -1

    def _forget(self, slot: int, start: int) -> None:
        """Drop the KV tokens of `slot` from `start` on."""
        if not self._calls.llama_memory_seq_rm(self._memory, slot, start, -1):
            raise EngineError(
                f"{self.library.name}: this model cannot forget its last tokens alone, "
                "as padding and failed steps ask; take a model with a plain KV cache"
            )
        self._held[slot] = start

    def _start(self, work: Work, row: int) -> int:
        """The position of the row's first token, with nothing behind it in the row's slot."""
        sequence, start, count = work.rows[row], work.past[row], work.counts[row]
        if sequence.slot < 0:
            sequence.slot = self._take_slot()
        held = self._held[sequence.slot]
        if work.padding[row] == count:  # of a padded row only the time counts, so any place will do
            start = min(start, held, self._slot_tokens - count)
        assert start <= held, f"a row starts from {start} KV tokens, but its slot holds {held}"
        if start < held:
            self._forget(sequence.slot, start)
        return start

    def _take_slot(self) -> int:
        if not self._free_slots:
            raise EngineError(
                f"a step has more sequences than the {len(self._held)} slots that the engine was loaded "
                "with; lower max_num_seqs, or load it with more"
            )
        return heappop(self._free_slots)

    def _decode(self, work: Work, starts: list[int]) -> None:
        counts = np.array(work.counts)
        first = np.cumsum(counts) - counts
        slots = np.repeat([sequence.slot for sequence in work.rows], counts)
        positions = np.arange(len(slots)) + np.repeat(np.array(starts) - first, counts)
        wanted = np.zeros(len(slots), np.int8)
        wanted[work.samples] = 1
        order = np.argsort(slots, kind="stable")
        columns = (
            np.array(work.tokens, np.int32)[order],
            positions[order].astype(np.int32),
            self._slot_ids.ctypes.data + 4 * slots[order],  # pointers to the slot ids
            wanted[order],
        )
        token, pos, seq_id, logits = (column.ctypes.data for column in columns)
        batch = Batch(len(slots), token, None, pos, self._ones.ctypes.data, seq_id, logits)
        code = self._calls.llama_decode(self._context, batch)
        if code != 0:
            reason = self.library.reason()
            raise EngineError(f"{self.library.name}: a step of {len(slots)} tokens failed ({code}): {reason}")

    def _sample(self, work: Work) -> list[int]:
        if not work.sampled:
            return []
        logits = np.ctypeslib.as_array(
            self._calls.llama_get_logits(self._context), (len(work.sampled), self._vocab_size)
        )
        place = np.argsort(np.argsort([sequence.slot for sequence in work.sampled]))  # of each one's logits
        chosen: list[int] = logits.argmax(axis=1)[place].tolist()
        for index in work.special:
            chosen[index] = sample(logits[place[index]], work.sampled[index])
        return chosen


def default_threads() -> int:
    """The cores that this process may use but one, at least one."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, cores - 1)


def requantized(
    gguf: str | Path,
    weights: str,
    *,
    folder: Path | None = None,
    threads: int | None = None,
    library: str | Path | None = None,
) -> Path:
    """`gguf` with its weights in another format (see `FILE_TYPES`), made once.

    It is kept in `folder`; None: beside `gguf`.

    Batching gains least with the formats that llama.cpp has no matrix kernels for, Q4_1 among them.
    """
    if weights not in FILE_TYPES:
        raise InputError(f"{weights!r} is no format of weights{nearest(weights, FILE_TYPES)}")
    source = Path(gguf)
    _check_file(source)
    folder = folder or source.parent
    target = folder / f"{source.stem}.{weights}.gguf"
    if target.exists() and target.stat().st_mtime >= source.stat().st_mtime:
        return target
    opened = open_library(library)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=folder) as made:
            part = Path(made) / target.name
            opened.quantize(source, part, FILE_TYPES[weights], threads or default_threads())
            part.replace(target)
    except OSError as error:
        raise InputError(f"{target}: cannot be written ({error.strerror}); give another folder") from None
    return target


def _free(calls: c.CDLL, model: int, context: int) -> None:
    calls.llama_free(context)
    calls.llama_model_free(model)


def _check_file(gguf: Path) -> None:
    if not gguf.is_file():
        raise InputError(f"{gguf}: no such file; give a GGUF")


def _check_limits(**limits: int | None) -> None:
    for name, value in limits.items():
        if value is not None and value < 1:
            raise LimitError(f"{name} is {value}, but must be at least 1")


def _settle_length(library: LibLlama, model: int, max_model_len: int | None, gguf: str | Path) -> int:
    if library.calls.llama_model_has_encoder(model):
        raise EngineError(f"{gguf}: has an encoder; take a model that only decodes")
    trained: int = library.calls.llama_model_n_ctx_train(model)
    if max_model_len is not None and max_model_len > trained:
        raise LimitError(
            f"max_model_len is {max_model_len}, but {gguf} was trained for {trained} tokens; lower it"
        )
    return max_model_len or trained
