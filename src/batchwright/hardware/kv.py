"""Bytes of KV that tokens leave on each GPU.

A token leaves 2 h_kv d_h numbers in every layer, or kv_rank + rope_dim of latent attention.  KV heads are
split over `tp` GPUs until there is one per GPU, and copied from there on; a latent vector has no heads, so
every GPU holds it whole.  Layers with a window need only its last tokens.
"""

from __future__ import annotations

from batchwright.hardware.model import Model
from batchwright.hardware.split import most_layers


def kv_bytes_per_token(model: Model, tp: int = 1, pp: int = 1) -> int:
    """Bytes that one token leaves on each GPU, in all layers; of a pipeline, on the fullest GPU."""
    return most_layers(model, pp) * _layer_bytes(model, tp)


def window_kv_bytes_per_token(model: Model, tp: int = 1, pp: int = 1) -> int:
    """Of `kv_bytes_per_token`, what lies in layers that need only the last `model.window` tokens."""
    return most_layers(model, pp) * model.window_layers // model.layers * _layer_bytes(model, tp)


def kv_bytes(model: Model, tokens: int, tp: int = 1, pp: int = 1) -> int:
    """Bytes on each GPU that a sequence of so many tokens needs to go on."""
    windowed = window_kv_bytes_per_token(model, tp, pp)
    full = kv_bytes_per_token(model, tp, pp) - windowed
    return full * tokens + windowed * min(tokens, model.window)


def _layer_bytes(model: Model, tp: int) -> int:
    if model.latent is not None:
        return model.latent.width * model.kv_element_bytes
    return 2 * max(model.kv_heads // tp, 1) * model.head_dim * model.kv_element_bytes
