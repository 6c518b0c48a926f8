"""KV blocks that vLLM counted at start-up, in public logs, beside those counted here.

All flags are the log's own; what it does not say is vLLM's default.  A point is counted in blocks, or in
GiB of KV cache where the log has no more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Final

from batchwright.accuracy.study import Row, Study
from batchwright.hardware import MODELS, Memory, Serving, find_gpu, memory, served
from batchwright.hardware.gpu import GIB
from batchwright.hardware.split import Split

RTX_4090: Final = "vLLM 0.19.0 run of LLMServingSim's validation on an RTX 4090, meta.json"
ISSUE: Final = "https://github.com/vllm-project/vllm/issues/10517"
EXPLORER: Final = "https://github.com/llm-d/llm-d-benchmark, config_explorer/empirical-vllm-memory-results.md"
TOKENKAKI: Final = "https://github.com/dariustanrd/tokenkaki, blogposts/content/1_vllm"
ORACLE: Final = (
    "https://github.com/oracle-samples/oci-data-science-ai-samples, ai-quick-actions/troubleshooting-tips.md"
)
LLMBENCH: Final = "notes of a public benchmark of vLLM 0.10.2 on an L40S, run bf16-20260924T003034Z"
VAST: Final = "start-up log of vLLM 0.24.0 in a public test, test_parse_vllm_mem.py"


@dataclass(frozen=True, kw_only=True)
class Point:
    """What one log says.  `total`: GiB of the GPU, where it says; `blocks` or `gib`: of KV cache."""

    gpu: str
    model: str
    engine: str
    source: str
    total: float | None = None
    blocks: int | None = None
    gib: float | None = None
    quantization: str | None = None
    tp: int = 1
    gpu_memory_utilization: float = 0.9
    max_num_batched_tokens: int = 2048
    max_num_seqs: int = 256
    is_chunked: bool = True

    def counted(self) -> Memory:
        """The same server, counted here."""
        gpu = find_gpu(self.gpu)
        if self.total is not None:
            gpu = replace(gpu, memory_bytes=int(self.total * GIB))
        serving = Serving(
            engine=self.engine,
            split=Split(self.tp, 1, 1, False),
            gpu_memory_utilization=self.gpu_memory_utilization,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_num_seqs=self.max_num_seqs,
            is_chunked=self.is_chunked,
        )
        return memory(gpu, served(MODELS[self.model], gpu, quantization=self.quantization), serving)

    def row(self) -> Row:
        found = self.counted()
        split = f", tp {self.tp}" if self.tp > 1 else ""
        what = f"{self.model} on {self.gpu}{split}, {self.engine}, {self.max_num_batched_tokens} tokens"
        if self.blocks is not None:
            return Row(what=what, unit="blocks", predicted=found.num_gpu_blocks, measured=self.blocks)
        assert self.gib is not None
        return Row(what=what, unit="GiB", predicted=found.available / GIB, measured=self.gib)


def _h100(model: str, gib: float, quantization: str | None = None, tp: int = 1) -> Point:
    """One of llm-d's: no version is given; it is one that still sorts, and counts as 0.10 to 0.16 do."""
    return Point(
        gpu="H100-SXM", model=model, engine="vllm@0.11", source=EXPLORER, total=79.18, gib=gib, tp=tp,
        quantization=quantization, max_num_batched_tokens=8192, max_num_seqs=1024,
    )  # fmt: skip


POINTS: Final = (
    Point(gpu="RTX-4090", model="llama-3.1-8b", engine="vllm@0.19", source=RTX_4090, blocks=2588),
    Point(gpu="RTX-3090", model="llama-3.1-8b", engine="vllm@0.6", source=ISSUE, total=23.58, blocks=1952,
          max_num_batched_tokens=20_000, is_chunked=False),
    Point(gpu="RTX-3090", model="llama-3.1-8b", engine="vllm@0.6", source=ISSUE, total=23.58, blocks=1478,
          max_num_batched_tokens=29_000, is_chunked=False),
    # 35,000: what its peak, 15.05 GiB with weights, and 0.35 GiB of non-torch memory leave of 0.9 x 23.58.
    Point(gpu="RTX-3090", model="llama-3.1-8b", engine="vllm@0.6", source=ISSUE, total=23.58, gib=5.82,
          max_num_batched_tokens=512),
    Point(gpu="A10G", model="llama-3.1-8b", engine="vllm@0.7", source=ORACLE, total=22.07, blocks=2356),
    Point(gpu="A100-40G", model="qwen3-8b", engine="vllm@0.9", source=TOKENKAKI, blocks=8505),
    Point(gpu="L40S", model="qwen3-8b", engine="vllm@0.10", source=LLMBENCH, blocks=10_684),
    _h100("llama-3.1-8b", 51.38),
    _h100("qwen3-0.6b", 64.45),
    _h100("qwen3-32b", 4.45),
    _h100("gpt-oss-20b", 50.28),
    _h100("llama-3.3-70b", 32.0, "fp8", 2),
    Point(gpu="RTX-5090", model="qwen2.5-7b", engine="vllm@0.24", source=VAST, blocks=13_947),
)  # fmt: skip


def study(data: Path | None = None) -> Study:
    """Every point.  `data` is not needed: the facts stand here."""
    rows = tuple(point.row() for point in POINTS)
    return Study(
        title="KV blocks of vLLM",
        source="; ".join(dict.fromkeys(point.source for point in POINTS)),
        calibration="the runtime of 0.17 and later makes the first row; that of earlier versions is the "
        "non-torch memory that these logs print; 7 MiB a CUDA graph from logs of Qwen models. Nothing else "
        "is fitted: the activation peak follows from tensor sizes",
        rows=rows,
        wrong=(
            "gpt-oss: vLLM pads its mxfp4 experts; 13.47 and 64.38 GiB are loaded of 20b and 120b, not the "
            "12.83 and 60.78 of the checkpoint, so that 120b has half the KV cache on 80 GB that is counted",
            "from 0.21 on logs have 0.2 to 0.5 GiB less for KV than is counted here: runtime that is not "
            "understood",
        ),
    )


def median_error() -> float:
    """Of all points, in absolute value."""
    return median(abs(row.error) for row in study().rows)
