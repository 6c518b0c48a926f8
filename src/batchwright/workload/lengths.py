"""From arrivals to a load: lengths, and the prefixes that prompts share.

Where nothing is said of the lengths they are those of `chat`, and a note says so.  A prompt is the
shared prefix, of `shared_prefix` tokens and one of `prefixes`, and then what its law draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Final

import numpy as np

from batchwright.errors import InputError
from batchwright.request import LONGEST
from batchwright.workload.checks import check_load, check_whole
from batchwright.workload.columns import GREATEST, Columns, Floats, Ints
from batchwright.workload.laws import Lognormal, Tokens, tokens_of
from batchwright.workload.load import Workload
from batchwright.workload.prefix import HASH_TOKENS, Hashes, offsets_of, ranges
from batchwright.workload.streams import LENGTHS, OUTPUT, PREFIX, PROMPT, stream
from batchwright.workload.token_limit import token_limit

if TYPE_CHECKING:
    from collections.abc import Sequence

CHAT_PROMPT: Final = Lognormal(median=700.0, sigma=0.9, most=8192)
CHAT_OUTPUT: Final = Lognormal(median=160.0, sigma=0.9, most=1024)
_PIECE: Final = 16  # tokens; the block size of most engines


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What the requests of a made load are like.  Raises InputError.

    `lengths`: a load whose pairs of prompt and output are drawn, instead of `prompt` and `output`.
    """

    n: int
    prompt: Tokens | None
    output: Tokens | None
    lengths: Workload | None
    shared_prefix: int
    prefixes: int
    seed: int

    def __post_init__(self) -> None:
        check_load(self.n, self.seed)
        check_whole("shared_prefix", self.shared_prefix, 0, LONGEST)
        check_whole("prefixes", self.prefixes, 1, GREATEST)
        if self.shared_prefix % _PIECE:
            raise InputError(f"shared_prefix is {self.shared_prefix}; give a multiple of {_PIECE} tokens")
        if self.prefixes > 1 and not self.shared_prefix:
            raise InputError(f"prefixes is {self.prefixes}, but shared_prefix is 0; give its tokens")
        if self.lengths is not None and not (self.prompt is None and self.output is None):
            raise InputError("lengths is given beside prompt or output; give it alone, or both of them")

    @property
    def piece(self) -> int:
        """Tokens of one prefix hash."""
        return gcd(HASH_TOKENS, self.shared_prefix)

    def draw(self) -> tuple[Ints, Ints]:
        """Prompts, without the shared prefix, and outputs."""
        if self.lengths is not None:
            rows = stream(self.seed, LENGTHS).integers(0, len(self.lengths), self.n)
            return self.lengths.prompt[rows], self.lengths.output[rows]
        prompt = CHAT_PROMPT if self.prompt is None else self.prompt
        output = CHAT_OUTPUT if self.output is None else self.output
        return (
            tokens_of("prompt", prompt, stream(self.seed, PROMPT), self.n),
            tokens_of("output", output, stream(self.seed, OUTPUT), self.n),
        )

    def notes(self) -> list[str]:
        """What was chosen for the user, and what prompts share."""
        if self.lengths is not None:
            said = [f"prompts and outputs drawn in pairs from {self.lengths.name}"]
        else:
            missing = [name for name in ("prompt", "output") if getattr(self, name) is None]
            said = [f"{' and '.join(missing)} lengths are those of chat (none were given)"] if missing else []
        if self.shared_prefix:
            said.append(f"prompts start with one of {self.prefixes} prefixes of {self.shared_prefix} tokens")
        return said


def shape_of(
    *,
    n: int,
    seed: int,
    prompt: Tokens | None = None,
    output: Tokens | None = None,
    lengths: Workload | None = None,
    shared_prefix: int = 0,
    prefixes: int = 1,
) -> Shape:
    """What made loads take for their lengths, with nothing said unless it is.  Raises InputError."""
    return Shape(
        n=n,
        prompt=prompt,
        output=output,
        lengths=lengths,
        shared_prefix=shared_prefix,
        prefixes=prefixes,
        seed=seed,
    )


def shaped(
    name: str,
    arrival: Floats,
    shape: Shape,
    *,
    client: Ints | None = None,
    after: Ints | None = None,
    think: Floats | None = None,
    notes: Sequence[str] = (),
) -> Workload:
    """A load with these arrivals."""
    prompt, output = shape.draw()
    prompt = with_prefix(prompt, shape)
    columns = Columns(
        arrival=arrival,
        prompt=prompt,
        output=output,
        client=client,
        hashes=_hashes(prompt, shape) if shape.shared_prefix else None,
        after=after,
        think=think,
        notes=(*notes, *shape.notes()),
    )
    return Workload(name, columns, token_limit(columns, None))


def with_prefix(prompt: Ints, shape: Shape) -> Ints:
    """Whole prompts.  Raises InputError if one is too long."""
    longest = int(prompt.max()) + shape.shared_prefix
    if longest > LONGEST:
        raise InputError(f"a prompt of {longest} tokens is over {LONGEST}; lower its lengths")
    return prompt + shape.shared_prefix


def prefix_of(count: int, shape: Shape) -> Ints:
    """Which of the shared prefixes each of `count` requests or sessions has."""
    return stream(shape.seed, PREFIX).integers(0, shape.prefixes, count)


def _hashes(prompt: Ints, shape: Shape) -> Hashes:
    """First the pieces of the shared prefix, then pieces that nobody else has."""
    shared = shape.shared_prefix // shape.piece
    own = -(-prompt // shape.piece) - shared
    first_own = shape.prefixes * shared + offsets_of(own)[:-1]
    return hashes_of(prefix_of(len(prompt), shape) * shared, shared, first_own, own, shape.piece)


def hashes_of(
    first_shared: Ints, shared: int, first_own: Ints, own: Ints, tokens: int, covered: Ints | None = None
) -> Hashes:
    """Per request `shared` hashes from `first_shared` on, and `own` ones from `first_own` on."""
    starts = np.column_stack((first_shared, first_own)).ravel()
    counts = np.column_stack((np.full(len(own), shared), own)).ravel()
    return Hashes(ranges(starts, counts), offsets_of(shared + own), tokens, covered)
