"""Where a run leaves what the cost model of its profile was measured on.

There the form of the model alone says what a step takes; nobody has seen whether it holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from batchwright.cost import Range
from batchwright.figures import count, listed
from batchwright.metrics import Numbers

WORDS: Final = {  # feature -> what a step has of it
    "tokens": "tokens",
    "num_chunks": "chunks of prompts",
    "num_decodes": "requests that decode",
    "padded_rows": "padded rows",
    "context_tokens": "KV tokens that decodes read",
    "past_tokens": "KV tokens behind chunks",
    "prefill_attention": "pairs of tokens in prefill",
}
LEAST_SHARE: Final = 0.0005  # of the steps; less is written so


def beyond(steps: Mapping[str, Numbers], fitted: Range) -> str:
    """What share of `steps`, the columns of a run, lies outside `fitted`; empty if none does."""
    parts = listed(list(_parts(with_tokens(steps), fitted)))
    return f"of its steps, {parts}" if parts else ""


def with_tokens(steps: Mapping[str, Numbers]) -> dict[str, Numbers]:
    """`steps` with the column `tokens`: all tokens of a step."""
    return {**steps, "tokens": steps["prefill_tokens"] + steps["num_decodes"] + steps.get("padded_rows", 0)}


def _parts(steps: Mapping[str, Numbers], fitted: Range) -> Iterator[str]:
    is_work = steps["tokens"] > 0
    for feature, words in WORDS.items():
        if feature not in fitted or feature not in steps or not is_work.any():
            continue
        values, (least, greatest) = steps[feature][is_work], fitted[feature]
        for outside, than, bound in ((values > greatest, "more", greatest), (values < least, "fewer", least)):
            if outside.any():
                yield f"{_share(outside)} have {than} than {count(bound)} {words}"


def _share(outside: Numbers) -> str:
    share = float(np.mean(outside))
    return f"{share:.1%}" if share >= LEAST_SHARE else "under 0.1%"
