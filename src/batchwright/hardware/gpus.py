"""GPUs by name: memory, bandwidth, peak arithmetic and links, each with its source.

`flops` is the dense rate of 16-bit tensor arithmetic with 32-bit accumulation: the
figures with sparsity that data sheets print in large are twice as high.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Final

from batchwright.errors import InputError, nearest

GIB: Final = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU.  Bytes, bytes/s and FLOP/s.

    memory_bytes  what CUDA reports as total, a few percent under the name on the box
    flops         dense 16-bit tensor rate
    fp8_flops     dense 8-bit floating-point rate; None: 8-bit weights compute in 16 bits
    link          to the other GPUs of a node, per direction
    host_link     to host memory, per direction; None: not known
    switched      NVSwitch joins the GPUs: an all-reduce takes 2 log2(tp) hops, not a ring's 2 (tp - 1)

    Raises InputError on a figure that no GPU can have.
    """

    name: str
    memory_bytes: int
    bandwidth: float
    flops: float
    fp8_flops: float | None = None
    link: float
    host_link: float | None = None
    switched: bool = False
    source: str

    def __post_init__(self) -> None:
        for key, value in (
            ("memory_bytes", self.memory_bytes),
            ("bandwidth", self.bandwidth),
            ("flops", self.flops),
            ("fp8_flops", self.fp8_flops),
            ("link", self.link),
            ("host_link", self.host_link),
        ):
            if value is not None and not (isfinite(value) and value > 0):
                raise InputError(f"GPU {self.name}: {key} is {value}, but must be finite and greater than 0")

    def rate(self, weight_bits: int) -> float:
        """Peak FLOP/s for weights of so many bits.  4-bit weights compute in 16 bits."""
        if weight_bits == 8 and self.fp8_flops is not None:
            return self.fp8_flops
        return self.flops


# Rates, bandwidths and links: NVIDIA's data sheet or architecture paper of each GPU, named in
# `source`.  NVLink data sheets add both directions; a PCIe x16 slot moves 16 GB/s (generation 3),
# 32 (4) or 64 (5) per direction: `host_link` is that of the slot, and copies reach somewhat less.
# Memory: the total in PyTorch's out-of-memory reports of that GPU (79.11 GiB on an H100, 44.53 on
# an L40S, 21.99 on an A10, 14.75 on a T4); drivers differ by about 0.2 GiB.  RTX 4090:
# cudaGetDeviceProperties under CUDA 12.8.
_ALL: Final = (
    Gpu(
        name="H100-SXM", memory_bytes=int(79.11 * GIB), bandwidth=3.35e12, flops=989e12,
        fp8_flops=1979e12, link=450e9, host_link=64e9, switched=True, source="NVIDIA H100 data sheet (2023)",
    ),
    Gpu(
        name="H100-PCIE", memory_bytes=int(79.11 * GIB), bandwidth=2.0e12, flops=756e12,
        fp8_flops=1513e12, link=64e9, host_link=64e9, source="NVIDIA H100 data sheet (2023)",
    ),
    Gpu(
        name="H200", memory_bytes=int(139.8 * GIB), bandwidth=4.8e12, flops=989e12,
        fp8_flops=1979e12, link=450e9, host_link=64e9, switched=True, source="NVIDIA H200 data sheet (2024)",
    ),
    Gpu(
        name="A100-80G-SXM", memory_bytes=int(79.15 * GIB), bandwidth=2.039e12, flops=312e12,
        link=300e9, host_link=32e9, switched=True, source="NVIDIA A100 data sheet (2021)",
    ),
    Gpu(
        name="A100-40G", memory_bytes=int(39.39 * GIB), bandwidth=1.555e12, flops=312e12,
        link=300e9, host_link=32e9, switched=True, source="NVIDIA A100 data sheet (2021), SXM",
    ),
    Gpu(
        name="L4", memory_bytes=int(22.03 * GIB), bandwidth=300e9, flops=121e12,
        fp8_flops=242e12, link=32e9, host_link=32e9, source="NVIDIA L4 data sheet (2023)",
    ),
    Gpu(
        name="L40S", memory_bytes=int(44.53 * GIB), bandwidth=864e9, flops=362e12,
        fp8_flops=733e12, link=32e9, host_link=32e9, source="NVIDIA L40S data sheet (2023)",
    ),
    Gpu(
        name="A10G", memory_bytes=int(21.99 * GIB), bandwidth=600e9, flops=70e12,
        link=32e9, host_link=32e9, source="NVIDIA A10G data sheet (2021)",
    ),
    Gpu(
        name="T4", memory_bytes=int(14.75 * GIB), bandwidth=320e9, flops=65e12,
        link=16e9, host_link=16e9, source="NVIDIA T4 data sheet (2019); float16, it has no bfloat16",
    ),
    Gpu(
        name="RTX-4090", memory_bytes=25_250_627_584, bandwidth=1008e9, flops=165.2e12,
        fp8_flops=330.3e12, link=32e9, host_link=32e9, source="NVIDIA Ada GPU architecture paper (2022)",
    ),
)  # fmt: skip

GPUS: Final[Mapping[str, Gpu]] = {gpu.name: gpu for gpu in _ALL}


def find_gpu(gpu: Gpu | str) -> Gpu:
    """The GPU itself, or the built-in one of that name in any case.  Raises InputError on another name."""
    if isinstance(gpu, Gpu):
        return gpu
    name = gpu.upper()
    if name not in GPUS:
        kin = ", ".join(known for known in GPUS if name and known.startswith(name))
        raise InputError(f"unknown GPU {gpu!r}{f'; give one of {kin}' if kin else nearest(name, GPUS)}")
    return GPUS[name]
