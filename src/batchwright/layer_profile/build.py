"""A cost model from a layer profile.

Of a step, the tables of one layer count as often as the model has it:

    once              embedding, final_layernorm; lm_head and sampler, by rows with logits
    twice per layer   layernorm
    once per layer    attention, and every other layer of dense.csv; moe, where layers have experts

With tensor parallelism every layer ends attention and feed-forward with an all-reduce, a ring:

    2 (tp - 1) hops + 2 (tp - 1)/tp * tokens * hidden * 2 bytes / link

Where tp * dp = n GPUs share experts, whole or cut, and not all have the same tokens, these are gathered
before them and reduced after: n - 1 hops and (n - 1)/n of their bytes each way.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import inf
from typing import Final

import numpy as np

from batchwright import hardware
from batchwright.cost import Layers
from batchwright.cost.curve import Curve
from batchwright.cost.grid import Grid
from batchwright.cost.layers import ExpertTimes, LayerTimes
from batchwright.errors import InputError
from batchwright.hardware import Gpu, Model
from batchwright.hardware.graph_memory import LARGEST, capture_sizes
from batchwright.hardware.names import model_of
from batchwright.hardware.roofline import SWITCHED_HOP
from batchwright.layer_profile.folder import Profile, read_profile
from batchwright.layer_profile.lines import Line
from batchwright.layer_profile.shapes import at_tp
from batchwright.layer_profile.surface import Surface
from batchwright.metrics import Numbers

GRAPHS: Final = LARGEST  # tokens of vLLM's largest captured graph: 2 max_num_seqs, at most this
ONCE: Final = ("embedding", "final_layernorm")
TWICE: Final = ("layernorm",)
FEED_FORWARD: Final = ("gate_up_proj", "act_fn", "down_proj")  # of layers without experts
ACTIVATION: Final = 2  # bytes
# All-reduces of two RTX PRO 6000 over PCIe 5 take 12.3 us + bytes / 36.5 GB/s from 4 KiB to 20 MiB, which in
# a ring of two is two hops, and 57 % of what the slot can move.
# Source: LLMServingSim 2, hardware.yaml of that card: NCCL under vLLM, 2 ranks.
PCIE_HOP: Final = 6.2e-6
PCIE_SHARE: Final = 0.57


@dataclass(frozen=True, kw_only=True)
class Split:
    """How a model is spread over GPUs.  `link`: bytes/s of each; `hop`: seconds of one message."""

    tp: int = 1
    dp: int = 1
    ep: bool = False
    link: float = 0.0
    hop: float = 0.0

    @property
    def ranks(self) -> int:
        """GPUs that whole experts are spread over; 1: every expert is cut over all GPUs."""
        return self.tp * self.dp if self.ep else 1

    @property
    def peers(self) -> int:
        """GPUs that tokens are gathered from before experts, and reduced to after them."""
        return self.tp * self.dp if self.ep or self.dp > 1 else 1


def layers(
    folder: str | os.PathLike[str],
    model: Model | str | None = None,
    tp: int = 1,
    layers: int | None = None,
    step: float = 0.0,
    dp: int = 1,
    ep: bool = False,
    link: float | None = None,
    hop: float | None = None,
    max_cudagraph_capture_size: int = GRAPHS,
) -> Layers:
    """The cost model of the layer profile in `folder`.

    `model`: a name or the path of a config.json (None: what the profile names); `layers`: instead of
    the model's.  `step`: seconds that every step takes beside, such as the host's.  `link` in bytes/s per
    direction, `hop` in seconds: by default those of the GPU that the profile names.
    `max_cudagraph_capture_size`: tokens up to which a step runs as a captured graph; 0: never (eager).
    Raises InputError on a folder that is no profile, an unknown model or link, or what the profile lacks.
    """
    profile = read_profile(os.fspath(folder), tp)
    shape = _shape(profile, model)
    count = _layer_count(profile, shape, layers)
    split = Split(tp=tp, dp=dp, ep=ep, **_wires(profile, tp * dp, link, hop))
    _check(profile, shape, split)
    times = _times(at_tp(profile, tp), shape, count, split, max_cudagraph_capture_size)
    name = f"{profile.folder}, {count} layers{_spread(split)}, graphs to {max_cudagraph_capture_size}"
    return Layers(name, times, step, tp, ep)


def _spread(split: Split) -> str:
    """All of a split that times depend on, in words; nothing for one GPU."""
    if split.tp * split.dp == 1:
        return ""
    whole = "whole" if split.ep else "cut"
    return f", tp {split.tp}, dp {split.dp}, experts {whole}, link {split.link:g}, hop {split.hop:g}"


# --- what is spread over what ---------------------------------------------------


def _shape(profile: Profile, model: Model | str | None) -> Model | None:
    """The model, if anybody knows it.  Raises InputError on one with other layers than were profiled."""
    profiled = model_of(profile.model) if profile.model else None
    if model is None:
        return profiled
    found = hardware.find_model(model)
    if profiled is not None and _layer_of(profiled) != _layer_of(found):
        raise InputError(
            f"{profile.folder}: was measured of {profile.model}, and {found.name} has other layers; "
            "profile that, or leave out model"
        )
    return found


def _layer_of(shape: Model) -> tuple[int, ...]:
    """The sizes of a layer that its times depend on."""
    return shape.hidden, shape.heads, shape.kv_heads, shape.head_dim, shape.intermediate, shape.experts


def _layer_count(profile: Profile, shape: Model | None, given: int | None) -> int:
    if given is not None:
        if given < 1:
            raise InputError(f"layers is {given}, but a model has at least 1")
        return given
    if shape is None:
        raise InputError(
            f"{profile.folder}: profiled model {profile.model!r} is not built in; "
            "give model, a name or the path of its config.json, or layers"
        )
    return shape.layers


def _wires(profile: Profile, gpus: int, link: float | None, hop: float | None) -> dict[str, float]:
    """Link and hop between `gpus` GPUs."""
    if gpus == 1:
        return {}
    gpu = None if profile.hardware is None else _gpu(profile.hardware)
    if link is None and gpu is None:
        raise InputError(
            f"{profile.folder}: the link of GPU {profile.hardware!r} is not known; give link, in bytes/s"
        )
    is_switched = gpu is not None and gpu.switched
    if link is None and gpu is not None:
        link = gpu.link if is_switched else PCIE_SHARE * gpu.link
    if hop is None:
        hop = SWITCHED_HOP if is_switched else PCIE_HOP
    return {"link": float(link or 0.0), "hop": hop}


def _gpu(name: str) -> Gpu | None:
    """The GPU that is called so, if it is built in."""
    try:
        return hardware.find_gpu(name)
    except InputError:
        return None


def _check(profile: Profile, shape: Model | None, split: Split) -> None:
    """Raises InputError on what cannot be priced."""
    if split.tp * split.dp > 1 and shape is None:
        raise InputError("what GPUs send one another needs the model's shape; give model")
    if not 0.0 <= split.hop < inf:
        raise InputError(f"hop is {split.hop}, but must be at least 0 seconds, and finite")
    if split.link <= 0.0 and split.tp * split.dp > 1:
        raise InputError(f"link is {split.link}, but must be greater than 0 bytes/s")
    if shape is not None:
        hardware.check_split(shape, split.tp, 1, split.dp, split.ep)
        if shape.moe_layers and profile.experts is None:
            raise InputError(
                f"{profile.folder}: {shape.name} has experts, but moe.csv is missing; profile it"
            )
        if not shape.moe_layers and profile.experts is not None:
            raise InputError(
                f"{profile.folder}: moe.csv is there, but {shape.name} has no experts; "
                "give the model that was profiled"
            )
    elif profile.experts is not None:
        raise InputError(
            f"{profile.folder}: moe.csv is there, so the number of experts is needed; give model"
        )


# --- tables of a whole step -----------------------------------------------------


def _times(profile: Profile, shape: Model | None, count: int, split: Split, graphs: int) -> LayerTimes:
    hidden = 0 if shape is None else shape.hidden
    rest = split.tp - 1
    sent = 2 * count * 2 * rest / split.tp * hidden * ACTIVATION  # bytes per token, of all-reduces
    gathered = 0.0 if split.peers == 1 or shape is None else _gathered(shape, split)
    waits = 2 * count * 2 * rest
    if shape is not None and split.peers > 1:
        waits += 2 * shape.moe_layers * (split.peers - 1)
    return LayerTimes(
        matrices=_matrices(profile, shape, count, graphs),
        head=_curve(list(profile.sequences.values()), [1] * len(profile.sequences)),
        attention=_grid(profile.attention, count),
        skew=profile.skew,
        experts=None if shape is None else _experts(profile, shape, split),
        hops=waits * split.hop,
        transfer=sent / split.link if sent else 0.0,
        gather=gathered,
        dp=split.dp,
    )


def _gathered(shape: Model, split: Split) -> float:
    """Seconds to bring one token of any rank to all that have experts, and back, in all layers."""
    numbers = 2 * shape.hidden + shape.experts  # hidden state there and back, router logits there
    share = (split.peers - 1) / split.peers
    return shape.moe_layers * numbers * ACTIVATION * share / split.link


def _matrices(profile: Profile, shape: Model | None, count: int, graphs: int) -> Curve:
    """By tokens: all layers of dense.csv, those of captured graphs at the size that was captured."""
    moe = 0 if shape is None else shape.moe_layers
    names = list(profile.dense)
    times = [_times_of(name, count, moe) for name in names]
    return _curve([profile.dense[name] for name in names], times, graphs)


def _times_of(name: str, count: int, moe: int) -> int:
    """How often a step runs a layer of dense.csv."""
    if name in ONCE:
        return 1
    if name in FEED_FORWARD:
        return count - moe
    return 2 * count if name in TWICE else count


def _curve(lines: list[Line], times: list[int], graphs: int = 0) -> Curve:
    last = int(max(line.counts[-1] for line in lines))
    wanted = captured(np.arange(1, last + 1), graphs)
    total = sum(count * line.at(wanted) for line, count in zip(lines, times, strict=True))
    return Curve([0.0, *np.asarray(total).tolist()])


def captured(tokens: Numbers, graphs: int) -> Numbers:
    """Tokens that the matrices run on: of the next captured graph; `graphs`: its greatest, 0: none."""
    sizes = np.array(capture_sizes(graphs))
    if not len(sizes):
        return tokens
    place = np.searchsorted(sizes, tokens)
    return np.where(tokens <= sizes[-1], sizes[np.minimum(place, len(sizes) - 1)], tokens)


def _grid(surface: Surface, count: int) -> Grid:
    return Grid([axis.tolist() for axis in surface.axes], (count * surface.values).ravel().tolist())


def _experts(profile: Profile, shape: Model, split: Split) -> ExpertTimes | None:
    if profile.experts is None:
        return None
    surface, is_whole = profile.experts.of(split.ranks)
    axes = [*(axis.tolist() for axis in surface.axes), [0], [0]]
    part = 1.0 if split.ep else 1.0 / (split.tp * split.dp)  # of each expert, or of all experts
    values = (shape.moe_layers * part * surface.values).ravel().tolist()
    return ExpertTimes(
        seconds=Grid(axes, values),
        experts=shape.experts,
        active=shape.active_experts,
        ranks=split.ranks,
        is_whole=is_whole,
    )
