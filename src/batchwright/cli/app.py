"""The commands and their flags; what they do is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from batchwright.errors import InputError

app = typer.Typer(
    help="Predict, explain and run the batching policy of an LLM inference server.",
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
SERVER = "Server (a model on a GPU, or a cost)"
LIMITS = "Limits (as vLLM names them)"
INTERRUPTED = 130


def run(arguments: list[str]) -> int:
    """Run one command; its exit status.  Raises BatchwrightError on bad input."""
    try:
        status = app(arguments or ["--help"], prog_name="batchwright", standalone_mode=False)
    except typer.TyperException as error:
        raise InputError(f"{error.format_message().rstrip('.')}; see batchwright --help") from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    if status == INTERRUPTED:  # what typer makes of Ctrl-C
        raise KeyboardInterrupt
    return status if isinstance(status, int) else 0


@app.callback()
def _root() -> None:
    """Predict, explain and run the batching policy of an LLM inference server."""


@app.command()
def version() -> None:
    """Print the version, and whether the core runs compiled or interpreted."""
    from batchwright import batch
    from batchwright.version import __version__

    mode = "interpreted (pure Python)" if (batch.__file__ or "").endswith(".py") else "compiled (mypyc)"
    print(f"batchwright {__version__}, core {mode}")


@app.command()
def compare(
    trace: Annotated[str, Argument(help="Azure CSV, Mooncake JSONL or plain CSV, gzipped or not; or: chat")],
    policies: Annotated[
        str | None, Option(help="such as 'static(batch_size=32),dynamic(window=0.25),vllm@0.19'")
    ] = None,
    policy_file: Annotated[
        list[Path] | None, Option(help="Python file that defines `policy`; may be given more than once")
    ] = None,
    requests: Annotated[int | None, Option(help="use the first N requests")] = None,
    max_tokens: Annotated[
        str | None,
        Option(help="limit that clients send: a number, or exact (an oracle); default: greatest output"),
    ] = None,
    gpu: Annotated[str | None, Option(help="default: H100-SXM", rich_help_panel=SERVER)] = None,
    model: Annotated[
        str | None,
        Option(help="name, or path of a config.json; default: llama-3.1-8b", rich_help_panel=SERVER),
    ] = None,
    tp: Annotated[
        int | None,
        Option("--tp", "--tensor-parallel-size", help="GPUs that share the model", rich_help_panel=SERVER),
    ] = None,
    gpu_memory_utilization: Annotated[
        float | None, Option(help="default: 0.92", rich_help_panel=SERVER)
    ] = None,
    cost: Annotated[
        str | None,
        Option(
            help="instead of a GPU: 'constant(0.025)', 'linear(base=0.005, prefill=2e-5)'",
            rich_help_panel=SERVER,
        ),
    ] = None,
    max_num_seqs: Annotated[int | None, Option(rich_help_panel=LIMITS)] = None,
    max_num_batched_tokens: Annotated[int | None, Option(rich_help_panel=LIMITS)] = None,
    max_model_len: Annotated[int | None, Option(rich_help_panel=LIMITS)] = None,
    block_size: Annotated[int, Option(rich_help_panel=LIMITS)] = 16,
    num_gpu_blocks_override: Annotated[
        int | None, Option(help="KV blocks, vLLM's null block included", rich_help_panel=LIMITS)
    ] = None,
    enable_prefix_caching: Annotated[bool, Option(rich_help_panel=LIMITS)] = True,
    over_length: Annotated[
        str, Option(help="a prompt of max_model_len or more: reject (and count), or fail")
    ] = "reject",
    json: Annotated[bool, Option("--json", help="print JSON (docs/json.md) instead of a table")] = False,
) -> None:
    """Compare batching policies on one trace."""
    from batchwright.cli.compare import Settings, compare

    compare(
        Settings(
            trace=trace,
            policies=policies,
            policy_files=policy_file or [],
            requests=requests,
            max_tokens=max_tokens,
            gpu=gpu,
            model=model,
            tp=tp,
            cost=cost,
            gpu_memory_utilization=gpu_memory_utilization,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=max_model_len,
            block_size=block_size,
            num_gpu_blocks_override=num_gpu_blocks_override,
            enable_prefix_caching=enable_prefix_caching,
            over_length=over_length,
            as_json=json,
        )
    )


@app.command()
def article(
    seeds: Annotated[int, Option(help="workloads to average over, at least 10")] = 200,
    short: Annotated[bool, Option("--short", help="ten lines")] = False,
    json: Annotated[bool, Option("--json", help="print JSON (docs/article.md)")] = False,
) -> None:
    """Compute an article's claims on batching again, beside the same workload run step by step."""
    from batchwright.cli.article import article

    article(seeds, short, json)
