"""The study for people: sections of a table and a verdict each, ten lines, or JSON."""

from __future__ import annotations

from dataclasses import asdict
from textwrap import fill
from typing import Any, Final

from batchwright.article import sections, words
from batchwright.article.study import BATCHES, Study

SCHEMA_VERSION: Final = 1
WIDTH: Final = 100


def full_text(study: Study, width: int = WIDTH) -> str:
    """Every section, in at most `width` columns; as words wrap, but tables do not, 80 is the least."""
    parts = [
        sections.head(study),
        sections.claim(study),
        sections.formula(study),
        sections.prefill(study),
        sections.laws(study),
        sections.gpus(study),
        sections.scheduler(study),
    ]
    return "\n\n\n".join(_section(part, width) for part in parts)


def short_text(study: Study) -> str:
    """Ten lines of at most 100 columns."""
    return "\n".join(words.ten_lines(study))


def as_json(study: Study) -> dict[str, Any]:
    """What `--json` prints; shares are of 1, units of all else are in the names."""
    found = asdict(study)
    return {
        "schema_version": SCHEMA_VERSION,
        "seeds": study.seeds,
        "formula_seeds": study.formula_seeds,
        "claims": words.claims(),
        "ways": {
            way: {
                "duration_s": row["seconds"],
                "output_throughput_tokens_per_s": row["output_throughput"],
                "total_throughput_tokens_per_s": row["total_throughput"],
            }
            for way, row in found["rows"].items()
        },
        "expected": {f"{way}_s": seconds for way, seconds in study.expected.items()},
        "gains": found["gains"],
        "static_claim": {
            "seeds_at_or_below": study.num_claimed,
            "needs_s": study.claim_seconds,
            "formula_gives_at_most_s": study.most_seconds,
        },
        "by_requests": found["counts"],
        "by_law": [
            {"law": row.law, "gains": {str(b): g for b, g in zip(BATCHES, row.gains, strict=True)}}
            for row in study.laws
        ],
        "by_gpu": [_renamed(row, GPU_UNITS) for row in found["gpus"]],
        "scheduler": [_renamed(row, SCHEDULER_UNITS) for row in found["scheduler"]],
        "flood": found["flood"],
    }


GPU_UNITS: Final = {
    "decode": "decode_step_s",
    "prefill": "prefill_s_per_token",
    "static": "static_total_tokens_per_s",
    "vllm": "vllm_total_tokens_per_s",
    "unpadded": "gain_over_unpadded_static",
    "padded": "gain_over_padded_static",
    "all_seats": "gain_with_all_seats",
}
SCHEDULER_UNITS: Final = {
    "host": "host_s",
    "steps": "step_s",
    "losses": "synchronous_loss",
    "asynchronous": "asynchronous_loss",
}


def _renamed(row: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in row.items()}


def _section(part: sections.Section, width: int) -> str:
    pieces = [piece if "\n" in piece else fill(piece, width) for piece in part.pieces]
    return "\n".join([part.title, "-" * len(part.title), *pieces])
