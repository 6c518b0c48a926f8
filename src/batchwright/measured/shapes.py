"""Small loads, each for steps of one shape: what a calibration runs.

decode   so many requests that decode together, over a short and a longer context
prompt   a step of so many prompt tokens
mixed    chunks of a prompt beside requests that decode
padded   a static batch whose rows end one after the other
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from batchwright.contract import Begins
from batchwright.limits import Limits
from batchwright.policies import Static, Vllm
from batchwright.request import Request

DECODES: Final = 7  # tokens of a request that decodes
SHORT: Final = 16  # tokens of context
LONG: Final = 192
FEW: Final = 4  # rows that decode over the longer context
ROWS: Final = 8  # that decode beside a prompt
EVEN: Final = 64  # tokens; multiples of it are faster than their neighbours
JUMPS: Final = (3, 5, 9, 17)  # rows that may take as long as the next power of two


@dataclass(frozen=True)
class Shape:
    """A load, all of which comes at once; `lengths`: prompt and output of each request."""

    name: str
    lengths: tuple[tuple[int, int], ...]
    limits: Limits
    policy: Begins = field(default_factory=Vllm)

    @property
    def tokens(self) -> int:
        """Of its greatest step, at most."""
        return min(sum(prompt for prompt, _ in self.lengths), self.limits.max_num_batched_tokens)

    def requests(self) -> list[Request]:
        """New ones."""
        return [Request(i, 0.0, prompt, output) for i, (prompt, output) in enumerate(self.lengths)]


def shapes(limits: Limits, most_tokens: int) -> Iterator[Shape]:
    """Those that `limits` allow, with steps of up to `most_tokens` prompt tokens."""
    alone = replace(limits, enable_prefix_caching=False)
    for rows in knots(min(limits.max_num_seqs, most_tokens)):
        yield from _fitting(decode(alone, rows, SHORT))
    for rows in (1, min(limits.max_num_seqs, FEW)):
        yield from _fitting(decode(alone, rows, LONG))
    for tokens in _prompts(most_tokens):
        yield from _fitting(prompt(alone, tokens))
    for chunk in (16, 64, 256):
        if chunk < most_tokens:
            yield from _fitting(mixed(alone, chunk))
    yield from _fitting(padded(alone))


def decode(limits: Limits, rows: int, context: int) -> Shape:
    """`rows` decode over `context` tokens."""
    return Shape(
        f"decode {rows} over {context}", ((context, DECODES),) * rows, _budget(limits, rows * context)
    )


def prompt(limits: Limits, tokens: int) -> Shape:
    """One step of so many prompt tokens, in as few prompts as `max_model_len` allows."""
    longest = limits.longest - 1
    count = -(-tokens // longest)
    lengths = [tokens // count + (i < tokens % count) for i in range(count)]
    return Shape(f"prompt {tokens}", tuple((length, 1) for length in lengths), _budget(limits, tokens))


def mixed(limits: Limits, chunk: int) -> Shape:
    """A prompt in chunks, beside half of `max_num_seqs` that decode."""
    rows = max(min(limits.max_num_seqs // 2, ROWS), 1)
    long = min(4 * chunk, limits.longest - 2)
    lengths = ((SHORT, DECODES),) * rows + ((long, 2),)
    return Shape(f"mixed {rows} + {chunk}", lengths, _budget(limits, rows + chunk))


def padded(limits: Limits) -> Shape:
    """A static batch of `max_num_seqs`, in which one row after the other ends."""
    rows = limits.max_num_seqs
    lengths = tuple((SHORT + i % 5, 1 + 2 * i) for i in range(rows))
    return Shape(f"padded {rows}", lengths, _budget(limits, rows * SHORT), Static(rows))


def _budget(limits: Limits, tokens: int) -> Limits:
    return replace(limits, max_num_batched_tokens=max(tokens, limits.max_num_seqs))


def _fitting(shape: Shape) -> Iterator[Shape]:
    """The shape, if the KV cache holds it and its requests are not too long."""
    limits = shape.limits
    blocks = sum(-(-(prompt + output) // limits.block_size) for prompt, output in shape.lengths)
    longest = max(prompt + output for prompt, output in shape.lengths)
    if longest <= limits.longest and blocks <= limits.blocks:
        yield shape


def knots(most: int) -> list[int]:
    """Rows at which the kernels of a CPU may change: powers of two, and one more of the small ones."""
    return sorted({*_powers(most), *(rows for rows in JUMPS if rows < most)})


def _prompts(most: int) -> list[int]:
    """The knots; from 64 on lengths between the powers, at which kernels are faster than at most others."""
    found = {most, *(tokens for tokens in JUMPS if tokens < most)}
    for power in _powers(most):
        found |= {power} if power < EVEN else {power * 3 // 4 + 3, power - 5}
    return sorted(found)


def _powers(most: int) -> list[int]:
    """Powers of two up to `most`, and that."""
    return sorted({*(1 << i for i in range(most.bit_length())), most})
