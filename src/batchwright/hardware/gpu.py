"""One GPU: memory, bandwidth, peak arithmetic by kind, and links."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import Final

from batchwright.errors import InputError

GIB: Final = 1 << 30
ARITHMETICS: Final = ("16-bit", "32-bit", "fp8", "int8", "fp4")


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU.  Bytes, bytes/s and FLOP/s.

    memory_bytes  what CUDA reports as total, a few percent under the name on the box
    flops         dense 16-bit tensor rate, with 32-bit accumulation
    fp8_flops     dense 8-bit floating-point rate; None: 8-bit weights compute in 16 bits
    int8_flops    dense 8-bit integer rate; None: likewise
    fp4_flops     dense 4-bit floating-point rate; None: 4-bit weights compute in 16 bits
    fp32_flops    rate without tensor cores, in which engines compute float32; None: not known
    link          to the other GPUs of a node, per direction
    host_link     to host memory, per direction; None: not known
    switched      NVSwitch joins the GPUs: an all-reduce takes 2 log2(tp) hops, not a ring's 2 (tp - 1)
    has_bfloat16  else 16 bits are float16
    is_cpu        a CPU under vLLM's CPU back end, which has other default limits
    words         what drivers and vendors put into its name besides, such as SXM4 or 80GB

    Raises InputError on a figure that no GPU can have.
    """

    name: str
    memory_bytes: int
    bandwidth: float
    flops: float
    fp8_flops: float | None = None
    int8_flops: float | None = None
    fp4_flops: float | None = None
    fp32_flops: float | None = None
    link: float
    host_link: float | None = None
    switched: bool = False
    has_bfloat16: bool = True
    is_cpu: bool = False
    words: str = field(default="", repr=False, compare=False)
    source: str

    def __post_init__(self) -> None:
        for key, value in (
            ("memory_bytes", self.memory_bytes),
            ("bandwidth", self.bandwidth),
            ("flops", self.flops),
            ("fp8_flops", self.fp8_flops),
            ("int8_flops", self.int8_flops),
            ("fp4_flops", self.fp4_flops),
            ("fp32_flops", self.fp32_flops),
            ("link", self.link),
            ("host_link", self.host_link),
        ):
            if value is not None and not (isfinite(value) and value > 0):
                raise InputError(f"GPU {self.name}: {key} is {value}, but must be finite and greater than 0")

    def rate(self, arithmetic: str) -> float:
        """Peak FLOP/s of one of ARITHMETICS; what the GPU has no rate for it computes in 16 bits.

        32 bits are never computed in 16: raises InputError if the GPU's rate is not known.
        """
        if arithmetic == "32-bit":
            return self._rate_of_float32()
        own = {"fp8": self.fp8_flops, "int8": self.int8_flops, "fp4": self.fp4_flops}.get(arithmetic)
        return self.flops if own is None else own

    def _rate_of_float32(self) -> float:
        if self.fp32_flops is None:
            raise InputError(f"GPU {self.name}: fp32_flops is not known; give it, or serve in 16 bits")
        return self.fp32_flops
