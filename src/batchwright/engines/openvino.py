"""OpenVINO with paged attention: the blocks of the batch are the blocks of the engine.

OpenVINO's paged-attention transformation turns a decoder into a network whose inputs are what a
scheduler leaves: flat token ids and positions, the past length and the block table of each row, and
the KV caches.  So a step is one forward, whatever mix of chunks and decodes it is, a shared prefix
is the same block id in two tables, and preemption is only that nobody names the blocks any more.
A gather in front of the last matrix product lets the sampled rows alone pay for their logits.

Every step first writes the keys and values of all its tokens, layer by layer, and then reads, so a
row may read a block that another row writes in the same step.
"""

from __future__ import annotations

import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from batchwright.engines.engine import Capacity
from batchwright.engines.sampling import sample
from batchwright.engines.work import Work
from batchwright.errors import EngineError, InputError, LimitError

KV_CACHE_PRECISIONS: Final = ("u8", "f16")

Ints = NDArray[np.int32]
Column = Ints | NDArray[np.int64]


class OpenVino:
    """A decoder on CPU, and its KV blocks.  One thread may use it at a time.

    threads              of a step
    precision            of its arithmetic; bf16 where the CPU has it, unless `exact`
    kv_bytes_per_block   keys and values of all layers
    vocab_size           token ids are below it
    versions             of the packages that compute
    """

    def __init__(self, compiled: Any, caches: dict[str, Any], max_model_len: int, exact: bool) -> None:
        """Use `load`."""
        num_blocks, _, block_size, _ = caches["value_cache.0"].shape
        self.capacity = Capacity(
            block_size=block_size,
            num_kv_blocks=num_blocks - 1,  # the last is the scratch block
            max_num_seqs=None,
            max_model_len=max_model_len,
            shares_prefixes=True,
        )
        self.threads: int = compiled.get_property("INFERENCE_NUM_THREADS")
        self.precision: str = compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
        self.kv_bytes_per_block: int = sum(cache.byte_size // cache.shape[0] for cache in caches.values())
        self.vocab_size: int = compiled.outputs[0].partial_shape[-1].get_length()
        self.versions = {"openvino": version("openvino")}
        self._exact = exact
        self._block_size = block_size
        self._request = compiled.create_infer_request()
        self._inputs = {port.any_name: index for index, port in enumerate(compiled.inputs)}
        for name, cache in caches.items():
            self._request.set_input_tensor(self._inputs[name], cache)
        self._tensor = type(next(iter(caches.values())))
        self._start = time.perf_counter()

    @classmethod
    def load(
        cls,
        ir: Path,
        *,
        threads: int,
        num_kv_blocks: int,
        max_model_len: int,
        kv_cache_precision: str = "u8",
        exact: bool = False,
    ) -> Self:
        """The model in `ir`, an `openvino_model.xml` with its weights beside it.

        `exact`: the tokens of a sequence do not depend on what else is in the batch, nor on how its
        prompt was cut into chunks.  Needs `f16`, and is slower on long prompts.

        Raises EngineError where OpenVINO is missing, is of a version that works otherwise, or cannot
        read `ir`, and InputError or LimitError on a value that cannot be.
        """
        _check(threads, num_kv_blocks, max_model_len, kv_cache_precision, exact)
        try:
            from batchwright.engines import openvino_network as network
        except ImportError as error:
            raise EngineError(
                f"the OpenVINO engine needs openvino ({error}); pip install 'batchwright[live]'"
            ) from None
        properties = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
            "KV_CACHE_PRECISION": kv_cache_precision,
        }
        if exact:  # what bf16 rounds depends on the number of rows
            properties["INFERENCE_PRECISION_HINT"] = "f32"
        compiled = network.compiled(network.paged(ir), properties)
        caches = network.caches(compiled, num_kv_blocks + 1)
        return cls(compiled, caches, max_model_len, exact)

    def run(self, work: Work) -> list[int]:
        """One forward of all rows, without Python's global lock."""
        for name, column in self._columns(work).items():
            self._request.set_input_tensor(self._inputs[name], self._tensor(column))
        logits = self._request.infer(share_outputs=True)[0].reshape(-1, self.vocab_size)
        tokens: list[int] = logits.argmax(axis=1).tolist()  # ten times faster than OpenVINO's own
        for index in work.special:
            tokens[index] = sample(logits[index], work.sampled[index])
        return tokens

    def now(self) -> float:
        return time.perf_counter() - self._start

    def sleep(self, until: float) -> None:
        time.sleep(max(0.0, until - self.now()))

    def _columns(self, work: Work) -> dict[str, Column]:
        """What the inputs of the network are in this step."""
        past, counts = np.array(work.past, np.int32), np.array(work.counts, np.int32)
        tables = [row.table for row in work.rows]
        positions = _positions(past, counts)
        if self._exact:  # attention sums a chunk in another order than a decode: make all tokens decodes
            tables = [table for table, count in zip(tables, work.counts, strict=True) for _ in range(count)]
            past, counts = positions, np.ones_like(positions)
        ends = past + counts
        blocks, num_blocks = self._blocks(tables, ends, work.scratch)
        return {
            "input_ids": np.array(work.tokens, np.int64),
            "position_ids": positions.astype(np.int64),
            "past_lens": past,
            "subsequence_begins": _bounds(counts),
            "block_indices": blocks,
            "block_indices_begins": _bounds(num_blocks),
            "max_context_len": np.array(ends.max()),
            "sampled_tokens_indices": np.array(work.samples, np.int64),
        }

    def _blocks(self, tables: list[list[int]], ends: Ints, scratch: int) -> tuple[Ints, Ints]:
        """The blocks that hold the tokens before `ends`, table after table, and how many of each."""
        num_blocks = -(-ends // self._block_size)
        blocks: list[int] = []
        for table, num in zip(tables, num_blocks.tolist(), strict=True):
            blocks += table[:num]
            blocks += [scratch] * (num - len(table))
        return np.array(blocks, np.int32), num_blocks


def _positions(past: Ints, counts: Ints) -> Ints:
    """The positions of all tokens, row after row."""
    before = _bounds(counts)
    return np.arange(before[-1], dtype=np.int32) + np.repeat(past - before[:-1], counts)


def _bounds(counts: Ints) -> Ints:
    """Where each part begins in a column of parts of `counts` entries, and the end of the last."""
    bounds = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=bounds[1:])
    return bounds


def _check(threads: int, num_kv_blocks: int, max_model_len: int, precision: str, exact: bool) -> None:
    """Raise InputError or LimitError on a value that cannot be."""
    if threads < 1:
        raise InputError(f"threads is {threads}, but must be at least 1")
    if precision not in KV_CACHE_PRECISIONS:
        known = " or ".join(KV_CACHE_PRECISIONS)
        raise InputError(f"kv_cache_precision is {precision!r}, but OpenVINO has {known} here")
    if exact and precision != "f16":
        raise InputError(
            f"exact with kv_cache_precision {precision!r} cannot be: how a block is rounded depends on the "
            "chunks that filled it; give 'f16'"
        )
    for name, value in (("num_kv_blocks", num_kv_blocks), ("max_model_len", max_model_len)):
        if value < 1:
            raise LimitError(f"{name} is {value}, but must be at least 1")
