"""How much longer attention takes when the contexts of its decodes differ.

    t = t_mean + alpha (t_max - t_mean)        t_mean, t_max: all with the mean, or the greatest, context

alpha was measured in classes of: prompt tokens, number of decodes, skew rate (mean - least) / (greatest
- least), greatest context, and KV tokens that the prompt tokens start from.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import inf

Key = tuple[int, int, int, int, int]  # of a class: which one along each of the five


class Skew:
    """alpha by class.  Above: `edges`, the greatest value of each class along the five, the last infinite.

    `default`: where nothing was measured.
    """

    __slots__ = ("_alpha", "_default", "_edges")

    def __init__(self, edges: Sequence[Sequence[float]], alpha: Mapping[Key, float], default: float) -> None:
        self._edges = [[float(edge) for edge in one] for one in edges]
        self._alpha = dict(alpha)
        self._default = default

    def alpha(self, prefill: float, decodes: float, rate: float, greatest: float, past: float) -> float:
        """The alpha of a step."""
        key = (
            self._class(0, prefill),
            self._class(1, decodes),
            self._class(2, rate),
            self._class(3, greatest),
            self._class(4, past),
        )
        return self._alpha.get(key, self._default)

    def edge(self, greatest: float) -> float:
        """The greatest context up to which alpha stays the same."""
        return self._edges[3][self._class(3, greatest)]

    def _class(self, which: int, value: float) -> int:
        return min(bisect_left(self._edges[which], value), len(self._edges[which]) - 1)


NO_SKEW = Skew([[inf]] * 5, {}, 0.0)
