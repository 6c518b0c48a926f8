"""A layer profile on disk.

    dense.csv          layer, tokens, time_us
    per_sequence.csv   layer, sequences, time_us
    attention.csv      prefill_chunk, kv_prefill, n_decode, kv_decode, time_us
    moe.csv            tokens, activated_experts, time_us (and ep): a model with experts
    skew_fit.csv       pc, n_label, skew_rate_label, kv_big_label, kp_label, alpha: where measured
    meta.yaml          what was profiled, and with what

The tables are in the folder itself (of TP 1), or in its subfolders `tp1`, `tp2`...
Source: the profiler of LLMServingSim 2 (MIT), which times each layer inside vLLM.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from batchwright.cost.skew import Skew
from batchwright.errors import InputError
from batchwright.layer_profile.expert_file import ExpertFile, read_experts
from batchwright.layer_profile.lines import Line, read_lines
from batchwright.layer_profile.surface import Surface, read_attention
from batchwright.layer_profile.unequal import skew_of

NEEDED: Final = ("dense.csv", "per_sequence.csv", "attention.csv")
HEAD: Final = "lm_head"


@dataclass(frozen=True, eq=False, kw_only=True)
class Profile:
    """The tables of one degree of tensor parallelism, `tp`.  Times are of one layer on one GPU.

    `meta`: what the profile says of itself; empty if it says nothing.
    """

    folder: Path
    tp: int
    dense: dict[str, Line]
    sequences: dict[str, Line]
    attention: Surface
    skew: Skew
    experts: ExpertFile | None
    meta: dict[str, Any]

    @property
    def model(self) -> str | None:
        """The name of the model that was profiled."""
        name = self.meta.get("model")
        return str(name) if name else None

    @property
    def hardware(self) -> str | None:
        """The name of the GPU that was profiled."""
        name = self.meta.get("hardware")
        return str(name) if name else None


def read_profile(folder: str | Path, tp: int = 1) -> Profile:
    """The tables for `tp`, or those of the greatest measured degree below it that divides it.

    Raises InputError if the folder is no layer profile, or one of its files is damaged.
    """
    root = Path(folder)
    if not root.is_dir():
        raise InputError(f"{root}: no such folder; give the folder of a layer profile, with dense.csv in it")
    degrees = _degrees(root)
    usable = [degree for degree in degrees if degree <= tp and tp % degree == 0]
    if not usable:
        raise InputError(
            f"{root}: measured at tp {', '.join(map(str, degrees))}, none of which divides tp {tp}; "
            "profile tp 1, too"
        )
    degree = max(usable)
    tables, meta = degrees[degree], _meta(root)
    return Profile(
        folder=root,
        tp=degree,
        dense=read_lines(tables / "dense.csv", "tokens"),
        sequences=_with_head(tables / "per_sequence.csv"),
        attention=read_attention(tables / "attention.csv"),
        skew=skew_of(tables, meta, degree),
        experts=read_experts(tables / "moe.csv") if (tables / "moe.csv").exists() else None,
        meta=meta,
    )


def _degrees(root: Path) -> dict[int, Path]:
    """The folder of the tables of every degree."""
    found = {}
    if (root / "dense.csv").exists():
        found[1] = root
    for path in sorted(root.iterdir()):
        name = re.fullmatch(r"tp([1-9][0-9]*)", path.name)
        if name and path.is_dir():
            found[int(name[1])] = path
    if not found:
        raise InputError(
            f"{root}: no layer profile: neither dense.csv nor a folder tp1 is in it; give the one that is"
        )
    for tables in found.values():
        for name_of in NEEDED:
            if not (tables / name_of).exists():
                raise InputError(f"{tables}: {name_of} is missing; a layer profile has {', '.join(NEEDED)}")
    return dict(sorted(found.items()))


def _meta(root: Path) -> dict[str, Any]:
    path = root / "meta.yaml"
    if not path.exists():
        return {}
    try:
        meta = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: cannot be read as YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(meta, dict):
        raise InputError(f"{path}: no mapping; meta.yaml of a layer profile has keys such as model")
    return meta


def _with_head(path: Path) -> dict[str, Line]:
    lines = read_lines(path, "sequences")
    if HEAD not in lines:
        raise InputError(f"{path}: no layer {HEAD}, which every model has; profile again")
    return lines
