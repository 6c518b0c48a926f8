"""SGLang's default of `chunked_prefill_size`, which goes by the memory of the GPU.

Source: SGLang 0.5.23, `arg_groups/memory_hook.py`.
"""

from __future__ import annotations

from typing import Final

from batchwright.hardware import find_gpu
from batchwright.hardware.gpu import GIB
from batchwright.policies.sglang import Sglang

_CHUNKS: Final = ((20, 2048), (60, 4096), (160, 8192))  # under so many GiB, tokens
_LARGEST: Final = 16384


def sglang_chunk(gpu: str) -> int | None:
    """Tokens; None where it is the default of our policy.  Raises InputError on an unknown GPU."""
    memory = find_gpu(gpu).memory_bytes / GIB
    found = next((tokens for most, tokens in _CHUNKS if memory < most), _LARGEST)
    return None if found == Sglang.chunked_prefill_size else found
