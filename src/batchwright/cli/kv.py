"""`batchwright kv`: what a GPU's memory holds, and what each flag would change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from typer import Option

from batchwright.scenario.keys import LIMITS, SERVER

if TYPE_CHECKING:
    from batchwright.kv_report import Asked

NUMBER: Final = "a number, or 8k (8000), 8K (8192)"
Gpu = Annotated[str, Option(help="GPU of the server", rich_help_panel=SERVER)]
Model = Annotated[str, Option(help="name, or path of a config.json", rich_help_panel=SERVER)]
Engine = Annotated[
    str | None,
    Option(help="version that counts, such as vllm@0.19; default: the latest", rich_help_panel=SERVER),
]
Use = Annotated[
    str, Option(help="server, or llm: the LLM class has other default limits", rich_help_panel=SERVER)
]
Dtype = Annotated[str, Option(help="auto, bfloat16, float16 or float32", rich_help_panel=SERVER)]
Quantization = Annotated[
    str | None, Option(help="of weights: fp8, awq, gptq, w8a8, mxfp4...", rich_help_panel=SERVER)
]
KvDtype = Annotated[str, Option(help="auto, bfloat16, fp8, fp8_e4m3 or fp8_e5m2", rich_help_panel=SERVER)]
Tp = Annotated[
    int, Option("--tp", "--tensor-parallel-size", help="GPUs that share the model", rich_help_panel=SERVER)
]
Pp = Annotated[
    int, Option("--pp", "--pipeline-parallel-size", help="stages of the layers", rich_help_panel=SERVER)
]
Dp = Annotated[int, Option("--dp", "--data-parallel-size", help="ranks in lock step", rich_help_panel=SERVER)]
Ep = Annotated[
    bool, Option("--enable-expert-parallel", help="whole experts, over all GPUs", rich_help_panel=SERVER)
]
Utilization = Annotated[float | None, Option(help="default: that of the version", rich_help_panel=SERVER)]
KvBytes = Annotated[
    str | None, Option(help="for the KV cache, instead of what is left", rich_help_panel=SERVER)
]
Eager = Annotated[bool, Option("--enforce-eager", help="no CUDA graphs", rich_help_panel=SERVER)]
ModelLen = Annotated[
    str | None, Option(help=f"{NUMBER}, or -1: what fits; default: the model's", rich_help_panel=LIMITS)
]
Seqs = Annotated[int | None, Option(help="requests that run at once", rich_help_panel=LIMITS)]
Tokens = Annotated[str | None, Option(help=f"of one step: {NUMBER}", rich_help_panel=LIMITS)]
Chunked = Annotated[bool | None, Option(help="V0 only: default by max_model_len", rich_help_panel=LIMITS)]
BlockSize = Annotated[int, Option(help="tokens of one KV block", rich_help_panel=LIMITS)]
Override = Annotated[int | None, Option(help="KV blocks, the null block included", rich_help_panel=LIMITS)]
Lengths = Annotated[str | None, Option(help="of requests, such as 2k,8k,32k: how many fit at once")]
Json = Annotated[bool, Option("--json", help="print JSON (docs/kv.md) instead of text")]


def kv(
    *,
    gpu: Gpu = "H100-SXM",
    model: Model = "llama-3.1-8b",
    engine: Engine = None,
    use: Use = "server",
    dtype: Dtype = "auto",
    quantization: Quantization = None,
    kv_cache_dtype: KvDtype = "auto",
    tp: Tp = 1,
    pp: Pp = 1,
    dp: Dp = 1,
    enable_expert_parallel: Ep = False,
    gpu_memory_utilization: Utilization = None,
    kv_cache_memory_bytes: KvBytes = None,
    enforce_eager: Eager = False,
    max_model_len: ModelLen = None,
    max_num_seqs: Seqs = None,
    max_num_batched_tokens: Tokens = None,
    enable_chunked_prefill: Chunked = None,
    block_size: BlockSize = 16,
    num_gpu_blocks_override: Override = None,
    lengths: Lengths = None,
    json: Json = False,
) -> None:
    """What the GPU memory holds: weights, activation peak, KV blocks; and what each flag changes."""
    from batchwright.kv_report import Asked
    from batchwright.kv_report.asked import number, numbers

    def read(text: str | None, flag: str) -> int | None:
        return None if text is None else number(text, flag)

    asked = Asked(
        gpu=gpu,
        model=model,
        engine=engine,
        use=use,
        dtype=dtype,
        quantization=quantization,
        kv_cache_dtype=kv_cache_dtype,
        tp=tp,
        pp=pp,
        dp=dp,
        enable_expert_parallel=enable_expert_parallel,
        gpu_memory_utilization=gpu_memory_utilization,
        kv_cache_memory_bytes=read(kv_cache_memory_bytes, "--kv-cache-memory-bytes"),
        enforce_eager=enforce_eager,
        max_model_len=-1 if max_model_len == "-1" else read(max_model_len, "--max-model-len"),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=read(max_num_batched_tokens, "--max-num-batched-tokens"),
        enable_chunked_prefill=enable_chunked_prefill,
        block_size=block_size,
        num_gpu_blocks_override=num_gpu_blocks_override,
        lengths=None if lengths is None else numbers(lengths, "--lengths"),
    )
    _print(asked, json)


def _print(asked: Asked, as_object: bool) -> None:
    from json import dumps

    from batchwright.cli.screen import screen
    from batchwright.kv_report import changes, plan
    from batchwright.kv_report.tree import tree
    from batchwright.kv_report.words import text

    made = plan(asked)
    others = changes(made)
    if as_object:
        print(dumps(tree(made, others), indent=2))
    else:
        print(text(made, others, screen().width))
