"""SGLang's `bench_serving --output-file --output-details`: one JSON object a line, appended run by run.

    ttfts        first chunk with text - sent                           seconds
    itls         between chunks with text; by SGLang's own interface each gap is split evenly over the
                 tokens of its chunk, so that the gaps are no real ones where a chunk has several
    output_lens  by the server's usage where it tells, else what was asked for
    latency      end of the stream - sent; not in the file, so E2E is TTFT and the gaps in sum
    tpot         (latency - TTFT) / (output - 1); only its statistics are there
    concurrency  sum of latencies / duration

There is no time at which a request was sent.

Source: SGLang 0.5.23, `sglang/benchmark/serving.py`.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Final

from batchwright.figures import share
from batchwright.imported.choose import chosen
from batchwright.imported.client import imported
from batchwright.imported.result import Finding, Imported
from batchwright.imported.seen import Seen
from batchwright.imported.serving_result import about_of, asked_of, claims_of, label_of, result_of, rows_of
from batchwright.imported.source import Source

FORM: Final = "line of SGLang's bench_serving"
KEYS: Final = {"duration", "completed", "total_output_tokens_retokenized", "mean_e2e_latency_ms"}
CONVENTIONS: Final = (
    "TTFT: first chunk with text - sent, in seconds: as ours",
    "TPOT: (end of stream - first) / (N - 1), statistics alone, in milliseconds: ours ends at the last token",
    "ITL: between chunks with text, split evenly over the tokens of a chunk by backend sglang, in seconds",
    "E2E: to the end of the stream, statistics alone, in milliseconds: ours is TTFT + sum of ITL",
)
FEW: Final = 0.01  # of the gaps, that may be equal by chance
STREAM_END: Final = 2e-3  # seconds from the last token to the end of a stream, on average at most
_METRICS: Final = {"ttft_s": "ttft", "tpot_s": "tpot", "itl_s": "itl", "e2e_s": "e2e_latency"}
_TOTALS: Final = {
    "duration": "duration_s",
    "completed": "num_completed",
    "total_input_tokens": "prompt_tokens",
    "total_output_tokens": "output_tokens",
    "request_throughput": "requests_per_s",
    "output_throughput": "output_tokens_per_s",
    "total_throughput": "total_tokens_per_s",
    "concurrency": "concurrency",
}


def matches(source: Source) -> bool:
    """Has its first line the keys of its results?"""
    return source.first.keys() >= KEYS


def read(source: Source) -> Imported:
    """Raises InputError on a line without its entries per request."""
    runs = [item for _, item in source.objects()]
    item = runs[chosen(source, [label_of(run) for run in runs])]
    result = result_of(source, item, FORM, "--output-details")
    return imported(
        Seen(
            file=source.name,
            form="SGLang bench_serving, JSONL with details",
            conventions=CONVENTIONS,
            about=about_of(item),
            rows=rows_of(result),
            claims=replace(claims_of(item, _TOTALS, _METRICS), stream_end=STREAM_END),
            asked=asked_of(result),
            findings=_split_evenly(result.itls),
        )
    )


def _split_evenly(itls: list[list[float]]) -> tuple[Finding, ...]:
    """Gaps that are exactly the one before are shares of one chunk's."""
    again = sum(gap == before for gaps in itls for before, gap in pairwise(gaps))
    total = sum(map(len, itls))
    if again <= FEW * total:
        return ()
    text = (
        f"{share(again / total)} of the gaps are exactly the one before: the gap of a chunk is split evenly "
        "over its tokens, so percentiles of ITL are too even"
    )
    return (Finding(text=text, is_wrong=False),)
