"""GPUs by name, each with its source.

`flops` and its kin are dense: the figures with sparsity that data sheets print in large are twice as high.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from batchwright.errors import InputError, nearest
from batchwright.hardware.gpu import GIB, Gpu

# Rates, bandwidths and links: the vendor's data sheet or architecture paper of each GPU, named in
# `source`.  NVLink data sheets add both directions; a PCIe x16 slot moves 16 GB/s (generation 3),
# 32 (4) or 64 (5) per direction: `host_link` is that of the slot, and copies reach somewhat less.
# Memory: the total in PyTorch's out-of-memory reports of that GPU (79.11 GiB on an H100, 44.53 on
# an L40S, 21.99 on an A10, 14.75 on a T4); drivers differ by about 0.2 GiB.  RTX 4090:
# cudaGetDeviceProperties under CUDA 12.8.  RTX 3090: vllm#10517.  B200, and its bandwidth: 7680 bits
# at 3996 MHz, cudaGetDeviceProperties in pytorch/ao#4002.  A30: as other 24 GiB cards with HBM or GDDR6X.
_ALL: Final = (
    Gpu(
        name="H100-SXM", memory_bytes=int(79.11 * GIB), bandwidth=3.35e12, flops=989e12,
        fp8_flops=1979e12, int8_flops=1979e12, fp32_flops=67e12, link=450e9, host_link=64e9,
        switched=True, words="80GB HBM3", source="NVIDIA H100 data sheet (2023)",
    ),
    Gpu(
        name="H100-PCIE", memory_bytes=int(79.11 * GIB), bandwidth=2.0e12, flops=756e12,
        fp8_flops=1513e12, int8_flops=1513e12, fp32_flops=51e12, link=64e9, host_link=64e9,
        words="80GB HBM2E", source="NVIDIA H100 data sheet (2023)",
    ),
    Gpu(
        name="H200", memory_bytes=int(139.8 * GIB), bandwidth=4.8e12, flops=989e12,
        fp8_flops=1979e12, int8_flops=1979e12, fp32_flops=67e12, link=450e9, host_link=64e9,
        switched=True, words="SXM 141GB HBM3E", source="NVIDIA H200 data sheet (2024)",
    ),
    Gpu(
        name="H20", memory_bytes=int(95.22 * GIB), bandwidth=4.0e12, flops=148e12,
        fp8_flops=296e12, int8_flops=296e12, fp32_flops=44e12, link=450e9, host_link=64e9,
        switched=True, words="SXM 96GB HBM3", source="NVIDIA HGX H20 data sheet (2024)",
    ),
    Gpu(
        name="B200", memory_bytes=int(178.35 * GIB), bandwidth=7.67e12, flops=2250e12,
        fp8_flops=4500e12, int8_flops=4500e12, fp4_flops=9000e12, fp32_flops=75e12, link=900e9,
        host_link=64e9, switched=True, words="SXM 180GB HBM3E",
        source="NVIDIA HGX B200 data sheet (2025); bandwidth as its driver states it",
    ),
    Gpu(
        name="A100-80G-SXM", memory_bytes=int(79.15 * GIB), bandwidth=2.039e12, flops=312e12,
        int8_flops=624e12, fp32_flops=19.5e12, link=300e9, host_link=32e9, switched=True,
        source="NVIDIA A100 data sheet (2021)",
    ),
    Gpu(
        name="A100-80G-PCIE", memory_bytes=int(79.15 * GIB), bandwidth=1.935e12, flops=312e12,
        int8_flops=624e12, fp32_flops=19.5e12, link=32e9, host_link=32e9,
        source="NVIDIA A100 data sheet (2021)",
    ),
    Gpu(
        name="A100-40G", memory_bytes=int(39.39 * GIB), bandwidth=1.555e12, flops=312e12,
        int8_flops=624e12, fp32_flops=19.5e12, link=300e9, host_link=32e9, switched=True,
        words="SXM", source="NVIDIA A100 data sheet (2021), SXM",
    ),
    Gpu(
        name="A100-40G-PCIE", memory_bytes=int(39.39 * GIB), bandwidth=1.555e12, flops=312e12,
        int8_flops=624e12, fp32_flops=19.5e12, link=32e9, host_link=32e9,
        source="NVIDIA A100 data sheet (2020), PCIe",
    ),
    Gpu(
        name="A30", memory_bytes=int(23.5 * GIB), bandwidth=933e9, flops=165e12, int8_flops=330e12,
        fp32_flops=10.3e12, link=32e9, host_link=32e9, words="24GB PCIE",
        source="NVIDIA A30 data sheet (2021)",
    ),
    Gpu(
        name="A10G", memory_bytes=int(21.99 * GIB), bandwidth=600e9, flops=70e12, int8_flops=140e12,
        fp32_flops=35e12, link=32e9, host_link=32e9, words="24GB", source="NVIDIA A10G data sheet (2021)",
    ),
    Gpu(
        name="L4", memory_bytes=int(22.03 * GIB), bandwidth=300e9, flops=121e12, fp8_flops=242e12,
        int8_flops=242e12, fp32_flops=30.3e12, link=32e9, host_link=32e9, words="24GB",
        source="NVIDIA L4 data sheet (2023)",
    ),
    Gpu(
        name="L40", memory_bytes=int(44.39 * GIB), bandwidth=864e9, flops=181e12, fp8_flops=362e12,
        int8_flops=362e12, fp32_flops=90.5e12, link=32e9, host_link=32e9, words="48GB",
        source="NVIDIA L40 data sheet (2023)",
    ),
    Gpu(
        name="L40S", memory_bytes=int(44.53 * GIB), bandwidth=864e9, flops=362e12, fp8_flops=733e12,
        int8_flops=733e12, fp32_flops=91.6e12, link=32e9, host_link=32e9, words="48GB",
        source="NVIDIA L40S data sheet (2023)",
    ),
    Gpu(
        name="T4", memory_bytes=int(14.75 * GIB), bandwidth=320e9, flops=65e12, int8_flops=130e12,
        fp32_flops=8.1e12, link=16e9, host_link=16e9, has_bfloat16=False, words="16GB",
        source="NVIDIA T4 data sheet (2019); float16, it has no bfloat16",
    ),
    Gpu(
        name="RTX-3090", memory_bytes=int(23.58 * GIB), bandwidth=936e9, flops=71e12, int8_flops=284e12,
        fp32_flops=35.6e12, link=32e9, host_link=32e9, words="24GB",
        source="NVIDIA Ampere GA102 GPU architecture paper (2020)",
    ),
    Gpu(
        name="RTX-4090", memory_bytes=25_250_627_584, bandwidth=1008e9, flops=165.2e12,
        fp8_flops=330.3e12, int8_flops=660.6e12, fp32_flops=82.6e12, link=32e9, host_link=32e9,
        words="24GB", source="NVIDIA Ada GPU architecture paper (2022)",
    ),
    Gpu(
        name="RTX-5090", memory_bytes=int(31.36 * GIB), bandwidth=1792e9, flops=209.5e12,
        fp8_flops=419e12, int8_flops=838e12, fp4_flops=1676e12, fp32_flops=104.8e12, link=64e9,
        host_link=64e9, words="32GB", source="NVIDIA RTX Blackwell GPU architecture paper (2025)",
    ),
    Gpu(
        name="RTX-PRO-6000", memory_bytes=int(94.97 * GIB), bandwidth=1792e9, flops=503.8e12,
        fp8_flops=1007.6e12, int8_flops=1007.6e12, fp4_flops=2015.2e12, fp32_flops=126e12, link=64e9,
        host_link=64e9, words="96GB",
        source="NVIDIA RTX PRO Blackwell GPU architecture paper (2025), workstation edition; "
        "the server edition has 1597 GB/s",
    ),
    Gpu(
        name="MI300X", memory_bytes=int(191.98 * GIB), bandwidth=5.3e12, flops=1307.4e12,
        fp8_flops=2614.9e12, int8_flops=2614.9e12, fp32_flops=163.4e12, link=448e9, host_link=64e9,
        words="192GB OAM HBM3", source="AMD Instinct MI300X data sheet (2023)",
    ),
    # One socket: 56 cores at 2.0 GHz with 2048 bfloat16 operations a cycle, 4096 of int8, and 64 of
    # float32 (two AVX-512 units); eight channels of DDR5-4800, filled with 64 GB each; to the
    # other socket four UPI links of 32 GB/s.
    Gpu(
        name="CPU", memory_bytes=512_000_000_000, bandwidth=307.2e9, flops=229e12, int8_flops=459e12,
        fp32_flops=7.2e12, link=128e9, is_cpu=True, words="XEON PLATINUM 8480 INTEL",
        source="Intel Xeon Platinum 8480+ product page (2023), 56 cores, 8 x DDR5-4800, AMX",
    ),
)  # fmt: skip

GPUS: Final[Mapping[str, Gpu]] = {gpu.name: gpu for gpu in _ALL}
COMMON: Final = dict.fromkeys(("H100", "H100-80G", "H100-80GB"), "H100-SXM")  # what most people mean
VENDORS: Final = {
    "NVIDIA", "GEFORCE", "TESLA", "AMD", "INSTINCT", "BLACKWELL", "WORKSTATION", "SERVER", "EDITION", "GPU",
}  # fmt: skip


def find_gpu(gpu: Gpu | str) -> Gpu:
    """The GPU itself, or the built-in one of that name.

    In any case, with or without its hyphens, or as a driver reports it ("NVIDIA A100-SXM4-80GB").
    Raises InputError on another name, and on one that several GPUs have.
    """
    if isinstance(gpu, Gpu):
        return gpu
    name = COMMON.get(gpu.upper(), gpu.upper())
    if name in GPUS:
        return GPUS[name]
    found = [known for known in GPUS.values() if _is_called(known, name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(f"GPU {gpu!r} may be several; give one of {', '.join(each.name for each in found)}")
    raise InputError(f"unknown GPU {gpu!r}{nearest(name, GPUS)}")


def _is_called(gpu: Gpu, name: str) -> bool:
    """Is every word of `name` one of the GPU, or all of them together its name?"""
    asked = _words(name)
    if "".join(asked) in (gpu.name.replace("-", ""), "".join(_words(gpu.name))):
        return True
    return bool(asked) and set(asked) <= set(_words(gpu.name) + _words(gpu.words))


def _words(name: str) -> list[str]:
    """SXM4 and SXM5 are one form, 80GB and 80G one size; the makers' own words say nothing."""
    words = [word for word in re.split(r"[^A-Z0-9]+", name) if word and word not in VENDORS]
    words = [re.sub(r"^SXM\d$", "SXM", word) for word in words]
    return [re.sub(r"^(\d+)GB$", r"\1G", word) for word in words]
