"""How much longer attention takes when the contexts of its decodes differ.

    t = t_mean + alpha (t_max - t_mean)        t_mean, t_max: all with the mean, or the greatest, context

alpha was measured at some numbers of prompt tokens, each in classes of: decodes, skew rate (mean -
least) / (greatest - least), greatest context, and KV tokens that the prompt tokens start from.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import inf

Key = tuple[int, int, int, int, int]  # prompt tokens, and which class along each of the four


class Skew:
    """alpha by prompt tokens and class; `default`: where nothing was measured.

    `edges`: the greatest value of each class along the four, the last infinite.
    """

    __slots__ = ("_alpha", "_default", "_edges")

    def __init__(self, edges: Sequence[Sequence[float]], alpha: Mapping[Key, float], default: float) -> None:
        self._edges = [[float(edge) for edge in one] for one in edges]
        self._alpha = dict(alpha)
        self._default = default

    def __reduce__(self) -> tuple[object, ...]:
        return Skew, (self._edges, self._alpha, self._default)

    def alpha(self, prefill: float, decodes: float, rate: float, greatest: float, past: float) -> float:
        """The alpha of a step."""
        key = (
            int(prefill),
            self._class(0, decodes),
            self._class(1, rate),
            self._class(2, greatest),
            self._class(3, past),
        )
        return self._alpha.get(key, self._default)

    def edge(self, greatest: float) -> float:
        """The greatest context up to which alpha stays the same."""
        return self._edges[2][self._class(2, greatest)]

    def _class(self, which: int, value: float) -> int:
        return min(bisect_left(self._edges[which], value), len(self._edges[which]) - 1)


NO_SKEW = Skew([[inf]] * 4, {}, 0.0)
