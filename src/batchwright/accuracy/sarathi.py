"""Steps of Yi-34B on two A100-80GB by the roofline, uncalibrated.

Measured by the authors of Sarathi-Serve (OSDI 2024): one prompt a step, of 128 to 16,384 tokens, and
decodes of 1 to 128 requests of 1,024 tokens.  Their GPUs are PCIe cards that NVLink joins in pairs.

Source: microsoft/sarathi-serve, osdi-experiments: figure-2, figure-9 and table-2 (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from batchwright.accuracy.published_files import csv_rows
from batchwright.accuracy.study import Row, Study
from batchwright.cost import Roofline
from batchwright.errors import InputError
from batchwright.hardware import Model, find_gpu
from batchwright.step import Step

CONTEXT: Final = 1022  # tokens of each decoding request: prompts of 1,020, the second of four outputs
CHUNK: Final = 512
MODEL: Final = Model(
    name="yi-34b", layers=60, hidden=7168, heads=56, kv_heads=8, head_dim=128,
    intermediate=20480, vocab=64000, max_position_embeddings=200_000,
    source="config.json of 01-ai/Yi-34B-200K",
)  # fmt: skip


def study(data: Path) -> Study:
    """`data`: the folder that holds `sarathi_osdi24`.  Raises InputError on a file that cannot be read."""
    folder, cost = data / "sarathi_osdi24", roofline()
    decodes = list(_decodes(folder, cost))
    rows = [*_prompts(folder, cost), *decodes, *_chunked(folder, cost)]
    return Study(
        title="Sarathi-Serve: steps of Yi-34B on two A100",
        source="microsoft/sarathi-serve, osdi-experiments, figures 2 and 9 and table 2 (Apache-2.0)",
        calibration="none: roofline of the data sheet, with the MFU, MBU and fixed time that are built in",
        rows=tuple(rows),
        wrong=(_outside(folder), _each(decodes), *_WRONG),
    )


def roofline() -> Roofline:
    """Two PCIe cards of 80 GB that NVLink joins: 1,935 GB/s of memory, 300 GB/s a direction between them."""
    card = replace(
        find_gpu("A100-80G-SXM"),
        name="A100-80G-PCIE-NVLINK",
        bandwidth=1.935e12,
        switched=False,
        source="NVIDIA A100 80GB PCIe data sheet (2021)",
    )
    return Roofline(card, MODEL, tp=2)


_WRONG: Final = (
    "Short steps are predicted too short: the engine of 2023 runs a layer's kernels one by one, without "
    "a graph, which no roofline knows.  Steps bound by arithmetic are nearer.",
    "The measurement of 256 tokens was the first batch of its run and took longer than that of 512.",
    "Chunks cost more than the roofline says: each launches all kernels anew.",
)


def _prompts(folder: Path, cost: Roofline) -> Iterator[Row]:
    for tokens, seconds in _read(
        folder / "figure-2_prefill.csv", "batch_num_prefill_tokens", "batch_execution_time"
    ):
        yield Row(
            what=f"prompt of {tokens:,.0f} tokens",
            unit="ms",
            predicted=1e3 * cost.seconds(prompt(round(tokens))),
            measured=1e3 * seconds,
        )


def _decodes(folder: Path, cost: Roofline) -> Iterator[Row]:
    for rows, seconds in _read(
        folder / "figure-2_decode.csv", "batch_num_decode_tokens", "batch_execution_time"
    ):
        count, step = round(rows), Step()
        step.quiet(count, 0, count * CONTEXT)
        yield Row(
            what=f"{count} decode{'s' if count > 1 else ''}",
            unit="ms",
            predicted=1e3 * cost.seconds(step),
            measured=1e3 * seconds,
        )


def _chunked(folder: Path, cost: Roofline) -> Iterator[Row]:
    """How many times as long a prompt takes in chunks as at once."""
    file = folder / "figure-9_chunking-overhead.csv"
    for length, chunk, ratio in _read(
        file, "prefill_length", "chunk_size", "prefill_execution_time_relative"
    ):
        if chunk == CHUNK:
            tokens = round(length)
            yield Row(
                what=f"prompt of {tokens:,} tokens in chunks of {CHUNK}, over the same at once",
                unit="times",
                predicted=chunked(cost, tokens, CHUNK) / cost.seconds(prompt(tokens)),
                measured=ratio,
            )


def chunked(cost: Roofline, tokens: int, chunk: int) -> float:
    """Seconds of a prompt in chunks of at most so many tokens, one a step."""
    starts = range(0, tokens, chunk)
    return sum(cost.seconds(prompt(min(chunk, tokens - start), past=start)) for start in starts)


def prompt(tokens: int, past: int = 0) -> Step:
    """A step of one chunk, which samples a token."""
    step = Step()
    step.prefill_tokens = tokens
    step.num_chunks = 1
    step.past_tokens = past
    step.prefill_attention = tokens * (past + tokens / 2)
    step.sampled_rows = 1
    return step


def _outside(folder: Path) -> str:
    """What the engine itself says of a small step, in milliseconds."""
    file = folder / "table-2_results.csv"
    count, whole, linear, attention = _read(
        file, "batch_size", "batch_execution_time", "linear", "attention"
    )[0]
    inside = linear + attention
    return (
        f"Of a step of {count:.0f} decodes, {whole:.1f} ms, the engine's own timers put {inside:.1f} ms in "
        f"matrices and attention; the other {whole - inside:.1f} ms are launches, communication and host, of "
        "which the roofline has little."
    )


def _each(decodes: list[Row]) -> str:
    """What a further decode costs."""
    first, last = decodes[0], decodes[-1]
    more = round(float(last.what.split()[0])) - 1
    predicted, measured = (last.predicted - first.predicted) / more, (last.measured - first.measured) / more
    return (
        f"Each further decode takes {measured:.2f} ms there and {predicted:.2f} ms here: what a "
        "request costs that engine beside matrices and the reading of its KV is not in the roofline."
    )


def _read(file: Path, *columns: str) -> list[list[float]]:
    """These columns of each row.  Raises InputError if one is missing, or no number."""
    rows = csv_rows(file)
    try:
        return [[float(row[name]) for name in columns] for row in rows]
    except (KeyError, TypeError, ValueError):
        raise InputError(
            f"{file}: has no numbers under {', '.join(columns)}; give the file as it was published"
        ) from None
