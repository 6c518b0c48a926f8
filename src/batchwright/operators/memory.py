"""The same GPUs and model in the catalogue, which counts their memory and has a roofline of them."""

from __future__ import annotations

from batchwright.cost import Roofline
from batchwright.errors import BatchwrightError
from batchwright.operators.engine import Asked
from batchwright.operators.names import our_gpu, our_model


def roofline_of(asked: Asked) -> Roofline | None:
    """None where the catalogue has not this GPU and model, or not with weights and KV of these types."""
    gpu, model = our_gpu(asked.gpu), our_model(asked.model)
    if gpu is None or model is None:
        return None
    try:
        return Roofline(
            gpu,
            model,
            asked.tp,
            ep=asked.ep,
            quantization=asked.quantization,
            kv_cache_dtype=asked.kv_cache_dtype,
        )
    except BatchwrightError:
        return None
