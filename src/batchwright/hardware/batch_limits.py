"""vLLM's default limits of a step, by GPU memory, version and use.

                          server             LLM class
    CPU                   128 x, 2048 x      256 x, 4096 x     times tp * pp
    less than 70 GiB      256,  2048         256,   8192
    70 GiB and more       1024, 8192         1024, 16384       not the A100 from 0.9 on
    160 GiB and more      1024, 16384        1024, 16384       from 0.28 on

V0 has one rule: 256 requests, and a step of max_model_len tokens, 2048 at least; in chunks over 32,768.

Source: vLLM, `engine/arg_utils.py` of the versions that `engine` names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from batchwright.errors import InputError, nearest
from batchwright.hardware.engine import Engine
from batchwright.hardware.gpu import GIB, Gpu

USES: Final = ("server", "llm")
LARGE: Final = 70 * GIB
HUGE: Final = 160 * GIB
UNCHUNKED: Final = 32768  # tokens; V0 chunks longer max_model_len
LEAST_TOKENS: Final = 2048


@dataclass(frozen=True)
class BatchLimits:
    """Requests at once, tokens of a step, and whether a prompt may take several steps."""

    max_num_seqs: int
    max_num_batched_tokens: int
    is_chunked: bool = True


def batch_limits(
    engine: Engine, gpu: Gpu, max_model_len: int, use: str = "server", ranks: int = 1
) -> BatchLimits:
    """The defaults.  `ranks`: tp * pp, which a CPU's limits grow with.  Raises InputError on another use."""
    if use not in USES:
        raise InputError(f"use is {use!r}{nearest(use, USES)}")
    if not engine.is_v1:
        return _of_v0(engine, max_model_len)
    seqs, tokens = _of_v1(engine, gpu, use == "server", ranks)
    tokens = min(tokens, seqs * max_model_len)
    return BatchLimits(min(seqs, tokens), tokens)


def _of_v0(engine: Engine, max_model_len: int) -> BatchLimits:
    if max_model_len <= UNCHUNKED:
        return BatchLimits(256, max(max_model_len, LEAST_TOKENS), is_chunked=False)
    return BatchLimits(256, 512 if engine.release < (0, 7) else LEAST_TOKENS)


def _of_v1(engine: Engine, gpu: Gpu, is_server: bool, ranks: int) -> tuple[int, int]:
    if gpu.is_cpu:
        return (128 * ranks, 2048 * ranks) if is_server else (256 * ranks, 4096 * ranks)
    if gpu.memory_bytes >= HUGE and engine.release >= (0, 28):
        return 1024, 16384
    is_small_a100 = gpu.name.startswith("A100") and engine.release >= (0, 9)
    if gpu.memory_bytes >= LARGE and not is_small_a100:
        return 1024, 8192 if is_server else 16384
    return 256, 2048 if is_server else 8192
