"""What to do where the first line is bad news."""

from __future__ import annotations

from math import floor

from batchwright.figures import count
from batchwright.kv_report.changes import Change
from batchwright.kv_report.lengths import longest_start
from batchwright.kv_report.plan import Plan
from batchwright.kv_report.verdict import is_fiction, is_tiny

HELPFUL = 0.02  # more tokens than without, as a share


def advice(made: Plan, others: list[Change]) -> list[str]:
    """Flags that help, the greatest help first; and the seats that there is room for."""
    if made.starts and not is_tiny(made) and not is_fiction(made):
        return []
    helpful = [
        (other, other.plan.tokens) for other in others if _helps(made, other) and other.plan is not None
    ]
    helpful.sort(key=lambda one: -one[1])
    said = [f"--{other.flag} {other.after}: {count(tokens)} KV tokens" for other, tokens in helpful]
    if is_fiction(made):
        said.append(f"--max-model-len {made.max_model_len // 2}: {_at(made, 2)} whole requests at once")
        said.append(
            f"--max-num-seqs {max(1, floor(_at(made, 2)))} to {max(2, floor(_at(made, 4)))}: so many "
            "requests of a half and of a quarter of max_model_len fit"
        )
    if not made.starts:
        said.append(f"--max-model-len {longest_start(made)}: the longest, below this, that starts")
    return said


def _helps(made: Plan, other: Change) -> bool:
    found = other.plan
    return found is not None and found.starts and found.tokens > (1 + HELPFUL) * made.tokens


def _at(made: Plan, parts: int) -> float:
    return round(made.concurrency(max(1, made.max_model_len // parts)), 1)
