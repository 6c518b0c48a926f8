"""The study of long prompts for people."""

from __future__ import annotations

from batchwright.edge.answer import Answer, Table
from batchwright.edge.load import LONG_OUTPUT, SHORT_OUTPUT, SHORT_PROMPT
from batchwright.edge.long_prompt import MORE_BLOCKS, Form, LongPrompt, Row
from batchwright.figures import amount, seconds, share
from batchwright.interval import Interval


def answer(study: LongPrompt) -> Answer:
    """What happens, why, and what to do."""
    return Answer(
        title="Long prompts that block short requests",
        setting=f"{study.server}; {amount(study.short_rate)} short requests/s (prompts "
        f"{_span(SHORT_PROMPT)}, outputs {_span(SHORT_OUTPUT)}) and {study.long_rate:.2f} prompts/s of "
        f"{study.long_tokens} tokens (outputs {_span(LONG_OUTPUT)}); two servers have twice of both. "
        f"Mean of {study.repeat} seeds, times in ms; tokens/s: prompt + output, per server, all there at "
        "once.",
        happens=[Table(_titles(), [_cells(row) for row in study.rows])],
        why=[_forms(study), _why(study)],
        answer=_answer(study),
    )


def _span(bounds: tuple[int, int]) -> str:
    return f"{bounds[0]} to {bounds[1]}"


def _titles() -> list[str]:
    times = ["TTFT\nP50", "\nP99", "ITL\nP50", "\nP99"]
    short, long = [f"\n{one}" for one in times], [f"\n{one}" for one in times]
    short[0], long[0] = f"short\n{times[0]}", f"long\n{times[0]}"
    return ["", *short, "\n\nworst", *long, "\ntokens\n/s"]


def _cells(row: Row) -> list[str]:
    times = (
        row.short_ttft_p50, row.short_ttft_p99, row.short_itl_p50, row.short_itl_p99, row.short_itl_most,
        row.long_ttft_p50, row.long_ttft_p99, row.long_itl_p50, row.long_itl_p99,
    )  # fmt: skip
    return [row.name, *map(_ms, times), f"{row.capacity.value:,.0f}"]


def _ms(found: Interval) -> str:
    return amount(1e3 * found.value)


def _forms(study: LongPrompt) -> Table:
    titles = ["", "\nchunks", "longest\nstep", "worst ITL\nsimulated", "one\nprompt", "\nload"]
    titles += ["long TTFT\nmean", "\nsimulated"]
    return Table(titles, [_form(one) for one in study.forms])


def _form(one: Form) -> list[str]:
    return [
        one.name,
        str(one.chunks),
        seconds(one.longest_step),
        seconds(one.itl_most),
        seconds(one.prompt_seconds),
        share(one.load),
        seconds(one.long_ttft),
        seconds(one.long_ttft_mean),
    ]


def _why(study: LongPrompt) -> str:
    cause, usual = study.cause, study.rows[1]
    more = f"with {MORE_BLOCKS} times the KV blocks TTFT P99 of short requests is {seconds(cause.roomy_p99)}"
    than = "not" if cause.is_memory else "against"
    verdict = "memory" if cause.is_memory else "scheduling, not memory"
    return (
        "A decode waits for the longest step: base + each n + prefill C, the last chunk reading the whole "
        "prompt. A long prompt waits late + rate S^2 / (2 (1 - rate S)) + S. A prompt that runs takes all "
        "the budget that decodes leave, so whoever comes waits up to S. The cause is "
        f"{verdict}: {more}, {than} {seconds(cause.usual_p99)}; KV is {share(usual.kv_peak.value)} full at "
        f"most, {usual.preemptions.value:.0f} preemptions."
    )


def _answer(study: LongPrompt) -> list[str]:
    whole, usual, small = study.rows[0], study.rows[1], study.rows[3]
    cut = min(study.rows[4:7], key=lambda row: row.short_ttft_p99.value)
    first, split = study.rows[7], study.rows[-1]
    goal = "no budget keeps" if study.goal_budget is None else f"a budget of {study.goal_budget} keeps"
    return [
        f"Chunks bound ITL, from {seconds(whole.short_itl_most.value)} to "
        f"{seconds(small.short_itl_most.value)} ({small.name}); {goal} {seconds(study.itl_goal)}. "
        "They do little for short TTFT: P99 "
        f"{seconds(whole.short_ttft_p99.value)} whole, {seconds(usual.short_ttft_p99.value)} ({usual.name}), "
        f"{seconds(small.short_ttft_p99.value)} ({small.name}).",
        f"{cut.name.capitalize()} does: {seconds(cut.short_ttft_p99.value)}, for "
        f"{_change(cut.long_ttft_p50, usual.long_ttft_p50)} long TTFT P50 and "
        f"{_change(cut.capacity, usual.capacity)} tokens/s. {first.name.capitalize()} alone "
        f"{seconds(first.short_ttft_p99.value)}: priority orders who waits, not who runs.",
        f"{split.name.capitalize()} has the steadiest ITL, worst {seconds(split.short_itl_most.value)}, but "
        f"short TTFT P99 {seconds(split.short_ttft_p99.value)}: every prompt waits in one queue.",
    ]


def _change(a: Interval, b: Interval) -> str:
    return f"{a.value / b.value - 1:+.1%}"
