"""How quantised weights are stored, and in what arithmetic they are used.

    bits per weight = weight_bits + scale_bits / group_size

Embeddings, the output head, norms, biases and routers keep the 16 bits of the model.
The names are those of vLLM's `--quantization`.  Source: its documentation, "Quantization".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from batchwright.errors import InputError
from batchwright.hardware.gpu import ARITHMETICS


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """One format of weights.  Raises InputError on one that cannot be.

    method        vLLM's name of it
    weight_bits   4 or 8
    group_size    weights that share a scale; 0: so many that the scales do not count
    scale_bits    of that scale, with its zero point
    arithmetic    in which the weights are used, where the GPU has a rate for it; else in 16 bits
    experts_only  other matrices keep 16 bits
    """

    method: str
    weight_bits: int
    group_size: int = 0
    scale_bits: int = 0
    arithmetic: str = "16-bit"
    experts_only: bool = False

    def __post_init__(self) -> None:
        if self.weight_bits not in (4, 8):
            self._refuse("weight_bits", self.weight_bits, "4 or 8")
        for key, value in (("group_size", self.group_size), ("scale_bits", self.scale_bits)):
            if value < 0:
                self._refuse(key, value, "at least 0")
        if self.arithmetic not in ARITHMETICS:
            self._refuse("arithmetic", self.arithmetic, f"one of {', '.join(ARITHMETICS)}")

    def _refuse(self, key: str, value: object, must: str) -> None:
        raise InputError(f"quantization {self.method}: {key} is {value!r}, but must be {must}")

    def size(self, weights: int) -> int:
        """Bytes of so many weights, scales included."""
        if not self.group_size:
            return weights * self.weight_bits // 8
        return weights * (self.weight_bits * self.group_size + self.scale_bits) // (8 * self.group_size)


def _of(method: str, bits: int, group: int = 0, scale: int = 0, arithmetic: str = "16-bit") -> Quantization:
    return Quantization(
        method=method, weight_bits=bits, group_size=group, scale_bits=scale, arithmetic=arithmetic
    )


# What vLLM makes of 16-bit weights while it loads them.
ONLINE: Final[Mapping[str, Quantization]] = {
    "fp8": _of("fp8", 8, arithmetic="fp8"),
    "ptpc_fp8": _of("ptpc_fp8", 8, arithmetic="fp8"),
    "mxfp8": _of("mxfp8", 8, 32, 8, "fp8"),
    "experts_int8": Quantization(method="experts_int8", weight_bits=8, experts_only=True),
    "bitsandbytes": _of("bitsandbytes", 4, 64, 8),
}
# What a checkpoint must hold; group sizes are the usual ones of each.
STORED: Final[Mapping[str, Quantization]] = {
    "awq": _of("awq", 4, 128, 16 + 4),
    "awq_marlin": _of("awq_marlin", 4, 128, 16 + 4),
    "gptq": _of("gptq", 4, 128, 16 + 4),
    "gptq_marlin": _of("gptq_marlin", 4, 128, 16 + 4),
    "w4a16": _of("w4a16", 4, 128, 16),
    "w8a16": _of("w8a16", 8),
    "w8a8": _of("w8a8", 8, arithmetic="int8"),
    "int8": _of("int8", 8, arithmetic="int8"),
    "fbgemm_fp8": _of("fbgemm_fp8", 8, arithmetic="fp8"),
    "modelopt": _of("modelopt", 8, arithmetic="fp8"),
    "modelopt_fp4": _of("modelopt_fp4", 4, 16, 8, "fp4"),
    "nvfp4": _of("nvfp4", 4, 16, 8, "fp4"),
    "mxfp4": Quantization(method="mxfp4", weight_bits=4, group_size=32, scale_bits=8, experts_only=True),
}
METHODS: Final[Mapping[str, Quantization]] = {**ONLINE, **STORED}


def agree(stored: str, asked: str) -> bool:
    """May a checkpoint of the one method be served as the other?  Marlin is a kernel, not a format."""
    return stored.removesuffix("_marlin") == asked.removesuffix("_marlin")
