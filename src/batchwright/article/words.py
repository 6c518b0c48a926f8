"""Numbers as words, the ten lines, and the claims."""

from __future__ import annotations

from typing import Any

from batchwright.article import claims as claimed
from batchwright.article.study import PREFILL, Study
from batchwright.interval import Interval


def seconds(value: Interval) -> str:
    """With half its interval."""
    return f"{value.value:.2f} ± {value.half:.2f} s"


def tokens(value: Interval) -> str:
    """Tokens/s, with half their interval."""
    return f"{value.value:,.0f} ± {value.half:,.0f}"


def share(value: Interval | float) -> str:
    """With its sign, in percent; an estimate with half its interval."""
    if isinstance(value, float):
        return f"{100 * value:+.1f}%"
    return f"{100 * value.value:+.1f} ± {100 * value.half:.1f}%"


def claims() -> dict[str, Any]:
    """What the article claims, with units in the names."""
    return {
        "static_tokens_per_s": claimed.CLAIMED_STATIC,
        "continuous_tokens_per_s": claimed.CLAIMED_CONTINUOUS,
        "gain": claimed.CLAIMED_GAIN,
        "gain_in_general": list(claimed.CLAIMED_RANGE),
        "scheduling_s": claimed.CLAIMED_SCHEDULING,
        "step_s": claimed.CLAIMED_STEP,
        "scheduling_share": claimed.CLAIMED_SHARE,
    }


def ten_lines(study: Study) -> list[str]:
    """The whole story, for somebody who reads nothing else."""
    rows, gains = study.rows, study.gains
    formula = rows["static_formula"], rows["continuous_formula"]
    h100 = study.gpus[-1]
    busy = study.scheduler[-1]
    return [
        f"The article: {claimed.REQUESTS} requests at once, batches of {claimed.BATCH}, "
        f"{1e3 * claimed.STEP:.0f} ms a step; mean of {study.seeds} seeds.",
        f"It claims    {claimed.CLAIMED_STATIC:,.0f} -> {claimed.CLAIMED_CONTINUOUS:,.0f} tokens/s, "
        f"{claimed.CLAIMED_GAIN:+.0%}, for continuous over static batching.",
        f"Its formulas {formula[0].total_throughput.value:,.0f} -> "
        f"{formula[1].total_throughput.value:,.0f} prompt + output tokens/s, {share(gains.formula)}: "
        f"{formula[0].seconds.value:.2f} s and {formula[1].seconds.value:.2f} s.",
        f"Step by step {rows['static'].total_throughput.value:,.0f} -> "
        f"{rows['continuous'].total_throughput.value:,.0f}, {share(gains.simulated)}: "
        f"{rows['static'].seconds.value:.2f} s and {rows['continuous'].seconds.value:.2f} s; "
        f"{share(gains.limit)} for very many requests.",
        f"Its formulas cannot show more than {share(study.counts[3].bound)}: the second is static with a "
        "fractional last batch.",
        f"At {study.counts[1].requests}, {study.counts[2].requests} and {study.counts[4].requests} "
        f"requests it even calls continuous slower: {share(study.counts[1].formula.value)}, "
        f"{share(study.counts[2].formula.value)}, {share(study.counts[4].formula.value)}.",
        f"With prompts at {1e3 * PREFILL:g} ms/token it is {share(gains.prefill)}; "
        f"{share(gains.prefill_padded)} if static also pads prompts.",
        f"On {h100.gpu} with llama-3.1-8b: {share(h100.unpadded)} over static without padding, "
        f"{share(h100.padded)} with it.",
        "+80 to 100% is right where a batch's longest output is 1.8 to 2 times the mean, prompts cheap.",
        f"Scheduling takes {1e6 * study.scheduler[0].host:.0f} us at {study.scheduler[0].running} "
        f"running, {1e3 * busy.host:.1f} ms at {busy.running}: {busy.losses[h100.gpu]:.1%} of a step on "
        f"{h100.gpu}, 0 if async.",
    ]
