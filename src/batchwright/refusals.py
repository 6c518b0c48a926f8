"""Why the batch refuses to admit a request, in words.  All raise PolicyError."""

from __future__ import annotations

from batchwright.errors import PolicyError
from batchwright.request import Request


def refuse_seat(r: Request, taken: int, most: int) -> None:
    """There is no seat for `r` beside `taken` others."""
    raise PolicyError(
        f"request {r.id} is admitted beside {taken} that run, but max_running is {most}; "
        "wait until one has left"
    )


def refuse_computed(r: Request, computed: int) -> None:
    """`r` cannot come with the KV of `computed` tokens."""
    if 0 < computed < r.tokens:
        raise PolicyError(
            f"request {r.id} is admitted on cached blocks and with KV of its own; give one of them"
        )
    raise PolicyError(
        f"request {r.id} is admitted with the KV of {computed} tokens, but has {r.tokens}, the newest of "
        "which is always computed; give at least 0 and fewer than that"
    )
