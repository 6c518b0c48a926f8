"""One request and the states that it goes through.

    WAITING -> PREFILLING -> DECODING -> FINISHED
       ^           |          |    |
       +-- preempted ---------+    +-> ENDED or PADDED -> FINISHED
                                   +-> HELD -> DECODING
    DECODING -> MOVING_OUT -> SWAPPED -> MOVING_IN -> DECODING, where KV goes to host memory and back
    CANCELLED from any of these, when the client has gone

Three kinds of requests stay without gaining a token, and have three states:

    HELD    a decode that misses the coming step
    ENDED   has all its tokens, keeps seat and blocks, is not computed
    PADDED  has all its tokens, keeps seat and blocks, is still computed

Who is moved has no seat: MOVING_OUT and MOVING_IN hold blocks, SWAPPED holds none.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from math import inf
from typing import Final

from batchwright.errors import RequestError

WAITING: Final = 0
PREFILLING: Final = 1
DECODING: Final = 2
HELD: Final = 3
ENDED: Final = 4
PADDED: Final = 5
FINISHED: Final = 6
CANCELLED: Final = 7
MOVING_OUT: Final = 8
SWAPPED: Final = 9
MOVING_IN: Final = 10

LAST_ID: Final = 1 << 38  # so that ids and block indices share one 63-bit key
NEVER: Final = inf  # seconds
NEW: Final = -1  # not known to any simulator
COMING: Final = -2  # submitted, but it has not come yet

LONGEST: Final = 1 << 24  # tokens; beyond any model, so a length over it is an error in the data


class Block:
    """A keyed KV block, or a run of `count` private ones that nobody can hit again."""

    __slots__ = ("count", "hits", "id", "key", "stale", "twin", "users")

    def __init__(self, key: int, count: int, users: int) -> None:
        self.key = key
        self.count = count
        self.users = users
        self.id = -1  # where an engine has it, if there is an engine
        self.hits = 0  # requests that started from it
        self.stale = 0  # entries in the free list from before it was taken again
        self.twin: Block | None = None  # the next block with the same key


NO_KEYS: Final = array("q")  # shared by all requests without a shared prefix: never changed
NO_BLOCKS: Final[list[Block]] = []  # the same, for keyed blocks


class Request:
    """One request.  Times in seconds on the batch's clock, lengths in tokens.

    `prefix`: keys of the leading full KV blocks of the prompt that other requests may share;
    a key stands for all tokens up to the end of its block (chained), and is not negative.
    `max_tokens`: the limit that the client sent, which policies may read (None: `output`).
    `true_output`: only workloads and the simulator may read it; 0 on a live engine.
    `then`: called with the request and the second at which its client has seen its end; it
    returns the requests that arrive next because of it (None: nobody waits for the end).

    Raises RequestError on a length or an arrival that no client can send.
    """

    __slots__ = (
        "admitted", "arrival", "blocks", "brought", "cached", "client", "computed", "due", "filled",
        "finished", "first_token", "gained", "generated", "guessed", "id", "max_tokens", "planned",
        "predicted", "preemptions", "prefix", "priority", "prompt", "queued", "reserved", "seat", "shift",
        "since", "state", "stopped", "then", "true_output", "until",
    )  # fmt: skip

    def __init__(
        self,
        id: int,
        arrival: float,
        prompt: int,
        output: int,
        max_tokens: int | None = None,
        priority: int = 0,
        prefix: array[int] = NO_KEYS,
        client: int = 0,
        then: Callable[[Request, float], Sequence[Request]] | None = None,
    ) -> None:
        if not (0.0 <= arrival < inf and 0 < prompt <= LONGEST and 0 < output <= LONGEST) or (
            not 0 <= id < LAST_ID
        ):
            _refuse(id, arrival, prompt, output)
        if not (isinstance(prompt, int) and isinstance(output, int)):
            raise RequestError(f"request {id}: lengths {prompt!r} and {output!r} must be whole numbers (int)")
        if prefix and min(prefix) < 0:
            raise RequestError(f"request {id}: prefix key {min(prefix)} is negative; give keys of at least 0")
        self.id = id
        self.arrival = arrival
        self.prompt = prompt
        self.true_output = output
        if max_tokens is not None and max_tokens < 1:
            raise RequestError(f"request {id}: max_tokens is {max_tokens}, but must be at least 1")
        self.max_tokens = output if max_tokens is None else max_tokens
        self.priority = priority
        self.prefix = prefix
        self.client = client
        self.then = then
        self.state = WAITING
        self.computed = 0  # tokens with KV in the cache; stale while decoding
        self.generated = 0  # tokens sampled so far; stale while decoding
        self.planned = 0  # tokens of the coming step (chunks and walks only)
        self.shift = 0  # computed = batch.clock + shift, while decoding
        self.due = 0  # clock of its last token; the simulator's
        self.gained = 1  # tokens that its last decode brought; more where drafts were accepted
        self.guessed = b""  # which of its tokens a draft guesses; the simulator's
        self.seat = 0  # rank in admission order
        self.reserved = 0  # KV blocks set aside at admission; 0: they are taken as needed
        self.queued = NEW  # ticks, for the log: of its arrival (or NEW, or COMING),
        self.admitted = 0
        self.cached = 0  # (prefix tokens found at admission,
        self.brought = 0  # and tokens whose KV came with it)
        self.since = 0  # of its first decode,
        self.stopped = 0  # after its last token,
        self.until = 0  # and after its last step
        self.filled = 0  # tokens that the cache can have with none of them in flight (overlap)
        self.blocks = NO_BLOCKS  # the leading KV blocks that have a key
        self.preemptions = 0
        self.predicted = 0.0  # tokens of output that a predictor expects, if the policy asked for one
        self.first_token = 0.0
        self.finished = 0.0

    @property
    def tokens(self) -> int:
        """Prompt and sampled tokens; stale while decoding."""
        return self.prompt + self.generated

    @property
    def unfilled(self) -> int:
        """Tokens still to prefill before it can decode."""
        return self.prompt + self.generated - self.computed


def _refuse(id: int, arrival: float, prompt: int, output: int) -> None:
    if not 0 <= id < LAST_ID:
        raise RequestError(f"request {id}: its id is outside 0 to {LAST_ID - 1}; give another")
    if not 0.0 <= arrival < inf:
        raise RequestError(f"request {id}: arrival {arrival} is not a time; give seconds of at least 0")
    name, tokens = ("prompt", prompt) if not 0 < prompt <= LONGEST else ("output", output)
    raise RequestError(
        f"request {id}: {name} of {tokens} tokens is outside 1 to {LONGEST}; correct the length"
    )
