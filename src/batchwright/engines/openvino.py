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
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from batchwright.engines.engine import Capacity
from batchwright.engines.next_token import sample
from batchwright.engines.work import Work
from batchwright.errors import EngineError, InputError, LimitError

KV_CACHE_PRECISIONS: Final = ("u8", "f16")
EXACT_TOKENS: Final = 32  # of a forward: kernels for more, and for one row alone, add up in another order

Column = NDArray[np.int32] | NDArray[np.int64]
Row = tuple[list[int], int, int]  # block table, past and number of tokens


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
        self._held: dict[str, Column] = {}  # the inputs of the last step, whose memory OpenVINO reads
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
        prompt was cut into chunks.  Needs `f16` and one thread, and is slower on long prompts.

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
        """One forward of all rows, without Python's global lock.  Raises EngineError if it fails."""
        if not work.rows:
            return []
        logits = self._exact_logits(work) if self._exact else self._logits(work)
        tokens: list[int] = logits.argmax(axis=1).tolist()  # ten times faster than OpenVINO's own
        if len(tokens) != len(work.sampled):
            raise EngineError(
                f"OpenVINO {self.versions['openvino']} computed {len(tokens)} rows of logits, but "
                f"{len(work.sampled)} were asked for; try another version of openvino, or `exact`"
            )
        for index in work.special:
            tokens[index] = sample(logits[index], work.sampled[index])
        return tokens

    def now(self) -> float:
        return time.perf_counter() - self._start

    def sleep(self, until: float) -> None:
        time.sleep(max(0.0, until - self.now()))

    def _logits(self, work: Work) -> NDArray[np.float32]:
        """Of each sampled row; valid until the next forward."""
        tables = [s.table for s in work.rows]
        rows = zip(tables, work.past, work.counts, strict=True)
        return self._forward(rows, work.tokens, work.samples, work.scratch)

    def _exact_logits(self, work: Work) -> NDArray[np.float32]:
        """The same, in forwards that all add up in the same order.

        Attention adds up a chunk in another order than a decode: each token is a decode here.  Rows
        of nobody are added, so that no forward has one row alone, nor one row of logits.
        """
        rows = [
            (s.table, past + i, 1)
            for s, past, count in zip(work.rows, work.past, work.counts, strict=True)
            for i in range(count)
        ]
        order = sorted(range(len(rows)), key=lambda index: rows[index][1])  # who reads a block comes last
        sampled = set(work.samples)
        found: dict[int, NDArray[np.float32]] = {}
        for start in range(0, len(order), EXACT_TOKENS):
            chosen = order[start : start + EXACT_TOKENS]
            samples = [place for place, index in enumerate(chosen) if index in sampled]
            part, tokens = [rows[index] for index in chosen], [work.tokens[index] for index in chosen]
            if len(part) == 1:
                part, tokens = [*part, ([], 0, 1)], [*tokens, 0]
            padded = samples * 2 if len(samples) == 1 else samples
            logits = self._forward(part, tokens, padded, work.scratch)
            found |= {chosen[place]: logits[i].copy() for i, place in enumerate(samples)}
        return np.array([found[index] for index in work.samples], np.float32).reshape(-1, self.vocab_size)

    def _forward(
        self, rows: Iterable[Row], tokens: list[int], samples: list[int], scratch: int
    ) -> NDArray[np.float32]:
        self._feed(rows, tokens, samples, scratch)
        self._request.infer(share_outputs=True)
        logits: NDArray[np.float32] = self._request.get_output_tensor(0).data.reshape(-1, self.vocab_size)
        return logits

    def _feed(self, rows: Iterable[Row], tokens: list[int], samples: list[int], scratch: int) -> None:
        """The columns of a forward, and what follows from them, as the inputs of the network."""
        past: list[int] = []
        begins = [0]
        positions: list[int] = []
        blocks: list[int] = []
        bounds = [0]
        for table, start, count in rows:
            end = start + count
            num_blocks = -(-end // self._block_size)
            past.append(start)
            begins.append(begins[-1] + count)
            positions += range(start, end)
            blocks += table[:num_blocks]
            blocks += [scratch] * (num_blocks - len(table))
            bounds.append(len(blocks))
        self._set("input_ids", np.array(tokens, np.int64))
        self._set("position_ids", np.array(positions, np.int64))
        self._set("past_lens", np.array(past, np.int32))
        self._set("subsequence_begins", np.array(begins, np.int32))
        self._set("block_indices", np.array(blocks, np.int32))
        self._set("block_indices_begins", np.array(bounds, np.int32))
        self._set("max_context_len", np.array(max(positions) + 1, np.int32))
        self._set("sampled_tokens_indices", np.array(samples, np.int64))

    def _set(self, name: str, column: Column) -> None:
        """Decodes follow decodes, with columns as long as the last ones: write into those."""
        held = self._held.get(name)
        if held is not None and held.shape == column.shape:
            held[...] = column
            return
        self._held[name] = column
        self._request.set_input_tensor(self._inputs[name], self._tensor(column, shared_memory=True))


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
    if exact and threads > 1:
        raise InputError(
            f"exact with {threads} threads cannot be: how they share a step changes the order of its sums; "
            "give 1"
        )
    for name, value in (("num_kv_blocks", num_kv_blocks), ("max_model_len", max_model_len)):
        if value < 1:
            raise LimitError(f"{name} is {value}, but must be at least 1")
