"""An engine without a model, for policies, servers and clients that are to be tried out.

A step takes what a cost model says.  Each token follows from all tokens before it, which are read
from the KV blocks: so a block that is shared, kept or given back wrongly shows in the output.
"""

from __future__ import annotations

import time
from typing import Final

import numpy as np

from batchwright.cost import CostModel, stretch_of
from batchwright.engines.engine import Capacity
from batchwright.engines.sequence import Sequence
from batchwright.engines.work import Work
from batchwright.metrics import Numbers
from batchwright.step import Step

MIX: Final = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio, as of a multiplicative hash


class Mock:
    """Blocks of `block_size` tokens, and times from `cost`.

    `is_real`: sleep for the time of each step; if not, a virtual clock runs.
    """

    def __init__(
        self,
        cost: CostModel,
        *,
        num_kv_blocks: int = 4096,
        block_size: int = 16,
        max_model_len: int | None = None,
        vocab_size: int = 32000,
        is_real: bool = True,
    ) -> None:
        self.capacity = Capacity(
            block_size=block_size,
            num_kv_blocks=num_kv_blocks,
            max_num_seqs=None,
            max_model_len=max_model_len or num_kv_blocks * block_size,
            shares_prefixes=True,
        )
        self.vocab_size = vocab_size
        self._stretch = stretch_of(cost)
        self._step = Step()
        self._is_real = is_real
        self._start = time.perf_counter()
        self._virtual = 0.0
        self._memory = np.full((num_kv_blocks + 1, block_size), -1, np.int64)  # token ids; -1: never written
        longest = self.capacity.max_model_len
        self._weights = np.arange(1, longest + 1, dtype=np.uint64) * np.uint64(MIX)

    def now(self) -> float:
        return time.perf_counter() - self._start if self._is_real else self._virtual

    def sleep(self, until: float) -> None:
        if self._is_real:
            time.sleep(max(until - self.now(), 0.0))
        else:
            self._virtual = max(self._virtual, until)

    def run(self, work: Work) -> list[int]:
        if not work.rows:
            return []
        begin = self.now()
        work.measure(self._step)
        seconds = self._stretch(self._step, 1)
        self._write(work)
        tokens = [self._next(work, i) for i in range(len(work.sampled))]
        self.sleep(begin + seconds)
        return tokens

    def _write(self, work: Work) -> None:
        size, start = self._memory.shape[1], 0
        for s, count, past, padding in zip(work.rows, work.counts, work.past, work.padding, strict=True):
            ids = work.tokens[start : start + count - padding]
            places = np.arange(past, past + len(ids))
            blocks = np.asarray(s.table, np.int64)[places // size]
            self._memory[blocks, places % size] = ids
            start += count

    def _next(self, work: Work, i: int) -> int:
        s = work.sampled[i]
        length = len(s.prompt) + len(s.tokens)
        context = self._memory[s.table].ravel()[:length]
        return self._allowed(s, self._hash(context) + (0 if s.sampling is None else s.sampling.seed))

    def _hash(self, context: Numbers) -> int:
        mixed = (context.astype(np.uint64) + np.uint64(1)) * self._weights[: len(context)]
        return int(np.bitwise_xor.reduce(mixed ^ (mixed >> np.uint64(29))))

    def _allowed(self, s: Sequence, number: int) -> int:
        token = number % self.vocab_size
        while token in s.stop_ids and not s.may_stop:
            token = (token + 1) % self.vocab_size
        return token
