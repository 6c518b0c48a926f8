"""How one model is split over GPUs, and what the fullest of them holds.

    tp   tensor parallel: every matrix is cut, over `tp` GPUs
    pp   pipeline: the layers are cut into `pp` stages
    dp   data parallel in lock step: attention and its KV are copied to `dp` ranks of `tp` GPUs, each
         with requests of its own; routed experts are spread over all tp * dp GPUs
    ep   whole experts lie on each of the tp * dp GPUs; without it every expert is cut over them

Source: vLLM 0.32, `--tensor-parallel-size`, `--pipeline-parallel-size`, `--data-parallel-size` and
`--enable-expert-parallel` of a model with experts.
"""

from __future__ import annotations

from typing import NamedTuple

from batchwright.errors import LimitError
from batchwright.hardware.model import Model


class Split(NamedTuple):
    """Into how many parts, of each kind."""

    tp: int
    pp: int
    dp: int
    ep: bool


def check_tp(model: Model, tp: int) -> None:
    """Raises LimitError if the model cannot be split over `tp` GPUs."""
    _check_count("tp", tp)
    if not splits(model, tp):
        choices = ", ".join(str(n) for n in range(1, model.heads + 1) if splits(model, n))
        raise LimitError(
            f"tp {tp} cannot split the {model.heads} heads and {model.kv_heads} KV heads "
            f"of {model.name}; choose one of {choices}"
        )


def splits(model: Model, tp: int) -> bool:
    """Can `tp` GPUs share the heads evenly?"""
    return model.heads % tp == 0 and (model.kv_heads % tp == 0 or tp % model.kv_heads == 0)


def check_split(model: Model, tp: int, pp: int, dp: int, ep: bool) -> None:
    """Raises LimitError if the model cannot be split so."""
    check_tp(model, tp)
    _check_count("pp", pp)
    _check_count("dp", dp)
    if not isinstance(ep, bool):
        raise LimitError(
            f"ep is {ep!r}, but must be True or False: experts lie on all tp * dp GPUs or are cut"
        )
    if pp > model.layers:
        raise LimitError(f"pp {pp} is over the {model.layers} layers of {model.name}; lower it")
    if dp > 1 and not model.moe_layers:
        raise LimitError(
            f"dp {dp} of {model.name}: without experts its ranks never wait for one another; "
            f"compare replicas(n={dp}) instead"
        )
    if ep and not model.moe_layers:
        raise LimitError(f"ep of {model.name}: the model has no experts; leave it out")
    if ep and tp * dp > model.experts:
        raise LimitError(f"tp {tp} * dp {dp} is over the {model.experts} experts of {model.name}; lower one")


def _check_count(name: str, value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise LimitError(f"{name} is {value!r}, but must be a whole number of at least 1")


def most_layers(model: Model, pp: int) -> int:
    """Layers of the stages that have the most."""
    return -(-model.layers // pp)


def weight_bytes(model: Model, tp: int = 1, pp: int = 1, dp: int = 1, ep: bool = False) -> int:
    """Bytes of weights on the fullest GPU: one of the first stage, which has the token embedding."""
    tables = model.table_bytes * (1 if pp > 1 or model.tied_embeddings else 2)
    experts = model.moe_layers * model.experts * model.expert_bytes
    core = _staged(model, model.core_bytes + (tp - 1) * model.copied_bytes, pp)
    core += tables + model.side_bytes
    ranks = tp * dp
    if ep:
        experts = experts // model.experts * (-(-model.experts // ranks) * ranks)
    return (core * dp + _staged(model, experts, pp)) // ranks


def _staged(model: Model, whole: int, pp: int) -> int:
    """The part of all layers' bytes that a stage with the most layers holds."""
    return -(-whole * most_layers(model, pp) // model.layers)
