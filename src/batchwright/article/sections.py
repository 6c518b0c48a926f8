"""The sections of the full text: each a table, and a verdict in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from batchwright.article.claims import (
    BATCH,
    CLAIMED_CONTINUOUS,
    CLAIMED_GAIN,
    CLAIMED_RANGE,
    CLAIMED_SCHEDULING,
    CLAIMED_SHARE,
    CLAIMED_STATIC,
    CLAIMED_STEP,
    OUTPUT,
    PROMPT,
    REQUESTS,
    STEP,
)
from batchwright.article.gpus import MANY_SEATS, MODEL
from batchwright.article.scheduler import CONTEXT, HOST
from batchwright.article.study import BATCHES, MANY, PREFILL, Study
from batchwright.article.words import seconds, share, tokens
from batchwright.figures import listed
from batchwright.plain_table import plain_table, table_text

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, kw_only=True)
class Section:
    """`pieces`: paragraphs, and tables as text; '' is an empty line."""

    title: str
    pieces: list[str]


def head(study: Study) -> Section:
    """What is computed."""
    setting = (
        f"An article in Chinese on batching policies claims {share(CLAIMED_GAIN)} for continuous over static "
        f"batching. Its setting: {REQUESTS} requests, all there at the start. Prompts of {PROMPT[0]} to "
        f"{PROMPT[1]} tokens, outputs of {OUTPUT[0]} to {OUTPUT[1]}, every length alike. Batches of "
        f"{BATCH}, {1e3 * STEP:.0f} ms a step. Every number below is computed now, but those that are "
        f"claimed: means over {study.seeds} seeds ({study.formula_seeds:,} of its formulas), with the "
        "half-width of their 95% interval behind ±."
    )
    return Section(title="The article, computed again", pieces=[setting])


def claim(study: Study) -> Section:
    """The claim, the formulas and the simulation."""
    table = _table("", "time", "output tokens/s", "total tokens/s", "gain")
    table.add_row("static, claimed", "", "", f"{CLAIMED_STATIC:,.0f}", "")
    table.add_row("continuous, claimed", "", "", f"{CLAIMED_CONTINUOUS:,.0f}", f"{CLAIMED_GAIN:+.0%}")
    _add_pair(
        table, study, "its formula", ("static_formula", "continuous_formula"), share(study.gains.formula)
    )
    _add_pair(table, study, "step by step", ("static", "continuous"), share(study.gains.simulated))
    rows, gains, expected = study.rows, study.gains, study.expected
    closed = (
        f"Over all workloads its formulas give {expected['static_formula']:.2f} s and "
        f"{expected['continuous_formula']:.2f} s in the mean, and continuous batching step by step "
        f"{expected['continuous']:.2f} s, in closed form."
    )
    verdict = (
        f"Its own formulas give {share(gains.formula.value)}, not {CLAIMED_GAIN:+.0%}. "
        f"{CLAIMED_STATIC:,.0f} tokens/s of static need {study.claim_seconds:.1f} s, but "
        f"{-(-REQUESTS // BATCH)} batches of at most {OUTPUT[1]} steps last {study.most_seconds:.1f} s at "
        f"most: {study.num_claimed:,} of {study.formula_seeds:,} seeds come down to it. Run step by step, "
        "with seats refilled as they fall free, continuous batching takes "
        f"{rows['continuous'].seconds.value:.1f} s, "
        f"not {rows['continuous_formula'].seconds.value:.1f} s: {share(gains.simulated.value)}."
    )
    units = (
        "Units: only total tokens/s, prompt + output, are in the range of its figures. Its users wait "
        f"for {rows['static'].output_throughput.value:,.0f} and "
        f"{rows['continuous'].output_throughput.value:,.0f} output tokens/s, as every output token costs "
        "a step and its prompts cost none."
    )
    return Section(
        title="1. The claim does not follow from its formulas",
        pieces=[table_text(table), "", closed, verdict, units],
    )


def formula(study: Study) -> Section:
    """Why the continuous formula cannot be right."""
    why = (
        "   static      sum over batches of max(output) * 25 ms\n"
        "   continuous  max(output) * 25 ms * max(n / 32, 1)\n"
    )
    reason = (
        f"The second charges the longest output of all to each of n / {BATCH} waves: nobody takes the "
        "seat of one who has left. It is static batching with a fractional last batch, so static / "
        f"continuous = (sum of the batches' maxima) / (maximum * n/{BATCH}) is at most ceil(n/{BATCH}) / "
        f"(n/{BATCH}), whatever the outputs."
    )
    table = _table("requests", "formulas", "at most", "step by step", "closed form")
    for row in study.counts:
        table.add_row(
            str(row.requests),
            share(row.formula),
            share(row.bound),
            share(row.simulated),
            share(row.closed_form),
        )
    many = study.gains
    table.add_row(str(MANY), "", "", share(many.many), share(many.many_closed_form))
    table.add_row("no end", "", share(0.0), "", share(many.limit))
    slower = [row for row in study.counts if row.formula.high < 0]
    at = study.counts[[row.requests for row in study.counts].index(REQUESTS)]
    verdict = (
        f"At n = {REQUESTS} the two formulas cannot show more than {share(at.bound)}. At "
        f"{listed([str(row.requests) for row in slower])} requests they call continuous batching slower "
        f"than static. The gain is 0 for one batch and grows to E[max of {BATCH}] / E[output] - 1 = "
        f"{share(many.limit)}."
    )
    return Section(
        title="2. Its continuous formula is static batching",
        pieces=[why, reason, "", table_text(table), "", verdict],
    )


def prefill(study: Study) -> Section:
    """What prompts cost."""
    table = _table("", "time", "output tokens/s", "total tokens/s", "gain")
    each = f"{1e3 * PREFILL:g} ms/token"
    gains, rows = study.gains, study.rows
    for name, way, gained in (
        (f"continuous, {each}", "continuous_prefill", ""),
        (f"static, {each}", "static_prefill", share(gains.prefill)),
        ("static, prompts padded", "static_prefill_padded", share(gains.prefill_padded)),
    ):
        row = rows[way]
        table.add_row(
            name, seconds(row.seconds), tokens(row.output_throughput), tokens(row.total_throughput), gained
        )
    verdict = (
        f"The gain is in decoding only. With prompts at {each} it falls from "
        f"{share(gains.simulated.value)} to {share(gains.prefill.value)}. If static pads every prompt to "
        f"the longest of its batch, the gain is {share(gains.prefill_padded.value)}, but that is the "
        "padding. Static that pays for prompts reaches "
        f"{rows['static_prefill'].total_throughput.value:,.0f} tokens/s, the nearest thing here to the "
        f"claimed {CLAIMED_STATIC:,.0f}; the claimed {CLAIMED_CONTINUOUS:,.0f} pays nothing."
    )
    return Section(title="3. Prompts are not free", pieces=[table_text(table), "", verdict])


def laws(study: Study) -> Section:
    """When the general claim is right."""
    table = _table("outputs (tokens)", *(f"B = {batch}" for batch in BATCHES))
    low, high = CLAIMED_RANGE
    for row in study.laws:
        cells = (f"{'* ' if low <= round(gain, 2) <= high else ''}{gain:+.0%}" for gain in row.gains)
        table.add_row(row.law, *cells)
    verdict = (
        f"* marks +{low:.0%} to {high:.0%}. It takes a longest output of a batch that is {1 + low:.1f} to "
        f"{1 + high:.1f} times the mean: outputs that spread more than the article's, or smaller batches "
        "of a long-tailed law; steps whose time hardly depends on the batch; and prompts that cost "
        "little. Long tails and large batches gain more, equal outputs nothing."
    )
    title = "4. When +80 to 100% is right: E[max of B] / E[output] - 1, prompts free"
    return Section(title=title, pieces=[table_text(table), "", verdict])


def gpus(study: Study) -> Section:
    """Step times of real GPUs."""
    table = _table(
        "", "decode step", "prefill", "static", "vllm", "gain", "if static pads", f"{MANY_SEATS} seats"
    )
    for row in study.gpus:
        table.add_row(
            row.gpu,
            f"{1e3 * row.decode:.1f} ms",
            f"{1e6 * row.prefill:.0f} us/token",
            f"{row.static.value:,.0f}",
            f"{row.vllm.value:,.0f}",
            f"{row.unpadded.value:+.0%}",
            f"{row.padded.value:+.0%}",
            f"{row.all_seats.value:+.0%}",
        )
    gains = [row.unpadded.value for row in study.gpus]
    padded = [row.padded.value for row in study.gpus]
    verdict = (
        f"{MODEL} on a roofline of each GPU, uncalibrated; total tokens/s, {BATCH} seats for both. The "
        f"gain is {min(gains):+.0%} to {max(gains):+.0%}, and {min(padded):+.0%} to {max(padded):+.0%} "
        "over a static that pads prompts and computes ended rows. What memory allows counts as much: "
        f"with {MANY_SEATS} seats continuous batching runs as many of the {REQUESTS} at once as the KV "
        "cache holds."
    )
    return Section(title="5. With the step times of real GPUs", pieces=[table_text(table), "", verdict])


def scheduler(study: Study) -> Section:
    """The scheduler's share of a step."""
    names = list(study.scheduler[0].steps)
    table = _table("running", "scheduling", *(_step_title(name) for name in names))
    for row in study.scheduler:
        cells = (f"{row.losses[name]:.1%} of {_ms(row.steps[name])}" for name in names)
        table.add_row(str(row.running), _ms(row.host), *cells)
    flood, h100 = study.flood, study.gpus[-1].gpu
    few, most = study.scheduler[0], study.scheduler[-1]
    claim_text = (
        f"It claims {_ms(CLAIMED_SCHEDULING)} of scheduling on a {_ms(CLAIMED_STEP)} step, "
        f"{CLAIMED_SHARE:.0%}, for a flood of short requests. Synchronous scheduling then loses t / (step "
        f"+ t) = {flood.synchronous_form:.1%} of the throughput; simulated: {flood.synchronous:.1%}. "
        "Asynchronous scheduling hides it, but sees every end a step late, 1 / (E[o] + 1) = "
        f"{flood.asynchronous_form:.1%}; simulated: {flood.asynchronous:.1%}."
    )
    verdict = (
        f"The table has vLLM's measured {1e6 * HOST.base:g} us + {1e6 * HOST.per_running:g} us per "
        f"running request. {_ms(CLAIMED_SCHEDULING)} is less than it takes at {few.running} running, and "
        f"no {MODEL} step is as short as {_ms(CLAIMED_STEP)}: of real steps ({CONTEXT} tokens of context "
        f"each) it is {few.losses[h100]:.1%} at {few.running} running and {most.losses[h100]:.1%} at "
        f"{most.running} on {h100}. Asynchronous scheduling loses "
        f"{max(row.asynchronous for row in study.scheduler):.0%} there. On the claimed step it would be "
        "far more than 10%: small models on fast GPUs are where the scheduler is the bottleneck."
    )
    return Section(title="6. Scheduling", pieces=[claim_text, "", table_text(table), "", verdict])


def _add_pair(table: Table, study: Study, how: str, ways: tuple[str, str], gained: str) -> None:
    for policy, way, last in zip(("static", "continuous"), ways, ("", gained), strict=True):
        row = study.rows[way]
        cells = seconds(row.seconds), tokens(row.output_throughput), tokens(row.total_throughput)
        table.add_row(f"{policy}, {how}", *cells, last)


def _step_title(name: str) -> str:
    return "claimed step" if name == "claimed" else name


def _ms(value: float) -> str:
    return f"{1e3 * value:.3g} ms"


def _table(*titles: str) -> Table:
    table = plain_table()
    for i, title in enumerate(titles):
        table.add_column(title, justify="right" if i else "left")
    return table
