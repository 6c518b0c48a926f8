"""What a file of measurements says, in this package's units and words.

Every reader of a format converts to these meanings, whatever the file's own are (see `metrics`):
seconds, TTFT and E2E from the arrival, TPOT over the output - 1 gaps after the first token.
A file that contradicts itself is told by a `Finding` with the number, and is never averaged in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from batchwright.metrics import Numbers

Columns = Mapping[str, Numbers]
About = dict[str, str | int | float | bool]
METRICS: Final = {"ttft_s": "TTFT", "tpot_s": "TPOT", "itl_s": "ITL", "e2e_s": "E2E"}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line about a file.  `is_wrong`: an identity is broken, so that what rests on it cannot be used."""

    text: str
    is_wrong: bool


@dataclass(frozen=True, kw_only=True)
class Imported:
    """One file of measurements.  What it does not have is None, or no column; nan: not of this row.

    file         its name
    form         what wrote it, with the version where the file tells, as `vllm bench serve, detailed JSON`
    conventions  what the file means by TTFT, TPOT and ITL, and what was converted, a line each
    findings     what is wrong in it, or odd
    about        what it says of the server and the client, under vLLM's and our own names:
                 engine, engine_version, model, gpu, tp, max_num_seqs, num_gpu_blocks, ...,
                 request_rate, max_concurrency
    requests     a row per request in order of arrival, the columns of `Run.requests` that it has:
                 arrival_s (from the first arrival), prompt_tokens, output_tokens, cached_tokens, preemptions,
                 scheduled_s (first admitted), first_token_s, finished_s, ttft_s, tpot_s, e2e_s; and
                 is_completed (0: the request failed, its times are nan)
    gaps         seconds between the tokens of each request, in the order of `requests`
    steps        a row per step: start_s, end_s, prefill_tokens, num_chunks, num_decodes, context_tokens,
                 prefill_attention, running, waiting, preempted, ... as `Run.steps` and `Step` name them
    series       a row per sample of the server's state: time_s, running, waiting, kv_usage (0 to 1), ...
    totals       single numbers of the whole file, as preemptions, duration_s, output_tokens_per_s
    """

    file: str
    form: str
    conventions: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    about: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    requests: Columns | None = None
    gaps: tuple[Numbers, ...] | None = None
    steps: Columns | None = None
    series: Columns | None = None
    totals: Mapping[str, float] = field(default_factory=dict)
