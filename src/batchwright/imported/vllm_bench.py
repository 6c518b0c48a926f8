"""`vllm bench serve --save-result --save-detailed`: one JSON object, or with --append-result one a line.

    ttfts        first chunk with a choice - sent                       seconds
    itls         between such chunks, one a token unless one chunk has several
    latencies    last chunk - sent, since 0.32; before, TTFT and the gaps in sum
    start_times  when it was sent, after the client's own queue for --max-concurrency
    queue_times  in that queue, since 0.32
    output_lens  by the server's usage, else the text counted again by the tokenizer; 0: it failed
    tpot         (last - first) / (output - 1) of outputs over one token: ours; only its statistics are there

Source: vLLM 0.32.0, `vllm/benchmarks/serve.py` and `lib/endpoint_request_func.py`.
"""

from __future__ import annotations

from typing import Any, Final

from batchwright.imported.choose import chosen
from batchwright.imported.client import imported
from batchwright.imported.result import Imported
from batchwright.imported.seen import Seen
from batchwright.imported.serving_result import about_of, asked_of, claims_of, label_of, result_of, rows_of
from batchwright.imported.source import Source

FORM: Final = "result of vllm bench serve"
KEYS: Final = {"duration", "completed", "total_input_tokens", "request_throughput", "num_prompts"}
CONVENTIONS: Final = (
    "TTFT: first chunk - sent, in seconds: as ours",
    "TPOT: (last - first) / (N - 1) of each request, statistics alone, in milliseconds: as ours, made anew",
    "ITL: between chunks, in seconds: as ours where each chunk is a token",
    "E2E: last chunk - sent: as ours",
)
_METRICS: Final = {"ttft_s": "ttft", "tpot_s": "tpot", "itl_s": "itl", "e2e_s": "e2el"}
_TOTALS: Final = {
    "duration": "duration_s",
    "completed": "num_completed",
    "failed": "num_failed",
    "total_input_tokens": "prompt_tokens",
    "total_output_tokens": "output_tokens",
    "request_throughput": "requests_per_s",
    "output_throughput": "output_tokens_per_s",
    "total_token_throughput": "total_tokens_per_s",
}


def matches(source: Source) -> bool:
    """Has it the keys of its results?"""
    return source.first.keys() >= KEYS


def read(source: Source) -> Imported:
    """Raises InputError on a file without its entries per request."""
    runs = [item for _, item in source.objects()]
    item = runs[chosen(source, [label_of(run) for run in runs])]
    result = result_of(source, item, FORM, "--save-detailed")
    return imported(
        Seen(
            file=source.name,
            form=_form(item),
            conventions=CONVENTIONS,
            about=about_of(item),
            rows=rows_of(result),
            claims=claims_of(item, _TOTALS, _METRICS),
            asked=asked_of(result, is_steady="ramp_up_strategy" not in item),
        )
    )


def _form(item: dict[str, Any]) -> str:
    if item.get("backend") == "batchwright":
        return "batchwright export, as vllm bench serve, detailed JSON"
    return f"vllm bench serve, detailed JSON{' of 0.32 or later' if 'latencies' in item else ''}"
