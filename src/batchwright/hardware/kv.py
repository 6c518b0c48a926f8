"""Bytes of KV per token: see `memory` for what they are counted in.

With tensor parallelism KV heads are split over `tp` GPUs, until there is one head per GPU; from there on
they are copied.  A pipeline splits the layers, with their KV; the fullest stage is counted.
"""

from __future__ import annotations

from typing import Final

from batchwright.hardware.models import Model
from batchwright.hardware.split import most_layers

UTILIZATION: Final = 0.92  # of the GPU memory: the default of the latest vLLM, see `engine`


def kv_bytes_per_token(model: Model, tp: int = 1, pp: int = 1) -> int:
    """Bytes of keys and values that one token leaves on each GPU, in 16 bits; of a pipeline, the fullest."""
    return 2 * most_layers(model, pp) * max(model.kv_heads // tp, 1) * model.head_dim * 2
