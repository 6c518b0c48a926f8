"""Tables of operator times, asked of their source point by point.

Points are as dense as the source's own are, or denser, so that a straight line between two of them is
close: matrices jump where a tile begins, at a multiple of 64 tokens and the one after it; attention is
smooth between powers of two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Final

from batchwright.cost import OperatorTimes
from batchwright.cost.surface import Plane, Polyline, Volume
from batchwright.operators.source import Operators

TOKENS: Final = 16_384  # of a step, and of a chunk
EVERY: Final = 512  # tokens up to which every number is asked
TILE: Final = 64  # then from tile to tile
ROWS: Final = 2_048
CONTEXT: Final = 131_072  # KV tokens of a row, and those that a chunk starts from
CHUNKS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256)


def operator_times(source: Operators) -> OperatorTimes:
    """The tables of all that `source` can answer within the limits above.  Raises InputError."""
    shared = _line("shared", tiles(TOKENS), source.shared)
    decodes = _line("decodes", tiles(TOKENS), source.decodes) if source.is_split else shared
    return OperatorTimes(
        shared=shared,
        decodes=decodes,
        head=_line("head", tiles(ROWS), source.head),
        prefill=_prefill(source),
        decode=_decode(source),
        context_tokens=source.context_tokens,
    )


def tiles(most: int) -> list[int]:
    """Every number of tokens up to `EVERY`, then where tiles end and begin."""
    found = list(range(1, min(EVERY, most) + 1))
    for end in range(EVERY + TILE, most + 1, TILE):
        found += [end - TILE + 1, end]
    return found


def octaves(most: int, each: int) -> list[int]:
    """0, and from 1 to `most` so many numbers between a power of two and the next, evenly spread."""
    found, power = [0], 1
    while power < most:
        step = max(power // each, 1)
        found += range(power, 2 * power, step)
        power *= 2
    return [number for number in found if number < most] + [most]


def _line(name: str, points: list[int], asked: Callable[[int], float]) -> Polyline:
    return Polyline(name, _numbers(points), [asked(point) for point in points])


def _decode(source: Operators) -> Plane:
    rows = sorted({*octaves(ROWS, 2)[1:], *((1 << k) - 1 for k in range(6, 12))})
    contexts = [number - 1 for number in octaves(CONTEXT + 1, 4)[1:]]
    values = [rising([source.decode(count, context) for context in contexts]) for count in rows]
    return Plane("decode attention", _numbers(rows), _numbers(contexts), values)


def rising(values: list[float]) -> list[float]:
    """Halfway between the least row above `values` that never falls, and the greatest below."""
    above = accumulate(values, max)
    below = list(accumulate(reversed(values), min))
    return [(high + low) / 2 for high, low in zip(above, reversed(below), strict=True)]


def _prefill(source: Operators) -> Volume:
    planes = [_chunks(source, count) for count in CHUNKS]
    return Volume("prefill attention", _numbers(CHUNKS), planes)


def _chunks(source: Operators, count: int) -> Plane:
    """Attention of so many chunks; of more tokens than twice a step's, in proportion, for nobody asks."""
    tokens, past = octaves(TOKENS, 4)[1:], octaves(CONTEXT, 2)
    most = max(number for number in tokens if count * number <= 2 * TOKENS)
    values = [[source.prefill(count, each, before) for before in past] for each in tokens if each <= most]
    for each in tokens[len(values) :]:
        values.append([value * each / most for value in values[tokens.index(most)]])
    return Plane("prefill attention", _numbers(tokens), _numbers(past), values)


def _numbers(points: Iterable[int]) -> list[float]:
    return [float(point) for point in points]
