"""What a router asks of the busiest of the ranks that experts are spread over.

A token uses k of E experts, expert e with chance p_e, and the p_e sum to k.  Of n tokens

    expert e is touched with chance  1 - (1 - p_e)^n
    a rank is asked for              n * sum of its p_e         pairs of a token and an expert

Every layer waits for its busiest rank.  A rank's number is nearly binomial with its mean and variance,
so the expected maximum is the sum over i of 1 - (product over ranks of P(number <= i)).  Great
numbers are nearly normal: of R alike ranks the maximum is mean + z_R * spread on average, with
z_R = Phi^-1((R - 3/8) / (R + 1/4)).  Ranks of popular experts are not alike: the j most popular among
them have at least the maximum of j alike ones with their mean, and the greatest such bound is taken.

Source: distinct experts, exact; normal scores, Blom 1958; the bound, the maximum is Schur-convex.
"""

from __future__ import annotations

from math import ceil, exp, fsum, log1p, sqrt
from typing import Final

MANY: Final = 24.0  # a mean number from which the normal law does
RARE: Final = 1e-9


def normal_scores(most: int) -> list[float]:
    """Expected maxima of 0, 1... `most` independent standard normal numbers; of none, 0.

    Too great by 4 % of 2, 0.6 % of 8.  Source: Blom 1958.
    """
    from statistics import NormalDist  # half of this package's import time, for few of its users

    law = NormalDist()
    return [0.0] + [law.inv_cdf((count - 0.375) / (count + 0.25)) for count in range(1, most + 1)]


def inclusion(experts: int, active: int, skew: float) -> list[float]:
    """The chance of each expert that a token uses it, the most popular first.

    The popularity of the i-th is i^-skew (0: all alike), cut where an expert is used by every token.
    """
    weights = [float(rank) ** -skew for rank in range(1, experts + 1)]
    certain = 0
    while True:  # each round finds more experts that every token uses, or ends
        scale = (active - certain) / fsum(weights[certain:]) if certain < active else 0.0
        more = sum(1 for weight in weights[certain:] if weight * scale >= 1.0)
        if not more:
            return [1.0] * certain + [weight * scale for weight in weights[certain:]]
        certain += more


class Router:
    """Expected work of the busiest of `ranks`, over which experts are dealt in turn by popularity.

    `ranks` 1: of all experts.  Answers are kept, by number of tokens.
    """

    def __init__(self, experts: int, active: int, ranks: int = 1, skew: float = 0.0) -> None:
        chances = inclusion(experts, active, skew)
        self._dealt = [chances[rank::ranks] for rank in range(ranks)]
        self._active = active
        self._more = experts / (experts - 1) if experts > 1 else 1.0  # k of E are drawn without return
        self._asked = [fsum(chances) for chances in self._dealt]  # pairs of one token
        self._varies = [self._more * fsum([p * (1.0 - p) for p in chances]) for chances in self._dealt]
        self._scores = normal_scores(ranks)
        self._touched: dict[int, float] = {}
        self._used: dict[int, float] = {}

    def touched(self, tokens: int) -> float:
        """Distinct experts of the busiest rank that so many tokens use, in one layer."""
        found = self._touched.get(tokens)
        if found is None:
            self._touched[tokens] = found = self._count_touched(tokens)
        return found

    def used(self, tokens: int) -> float:
        """Pairs of a token and an expert of the busiest rank, in one layer."""
        found = self._used.get(tokens)
        if found is None:
            self._used[tokens] = found = self._count_used(tokens)
        return found

    def _count_touched(self, tokens: int) -> float:
        means: list[float] = []
        spreads: list[float] = []
        for chances in self._dealt:
            mean = spread = 0.0
            for chance in chances:
                missed = (1.0 - chance) ** tokens
                both = ((1.0 - chance) * max(1.0 - chance * self._more, 0.0)) ** tokens
                mean += 1.0 - missed
                spread += missed - both
            means.append(mean)
            spreads.append(spread)
        held = len(self._dealt[0])
        return min(self._greatest(means, spreads), float(held), float(tokens * min(self._active, held)))

    def _count_used(self, tokens: int) -> float:
        means = [tokens * each for each in self._asked]
        spreads = [tokens * each for each in self._varies]
        return min(self._greatest(means, spreads), float(tokens * min(self._active, len(self._dealt[0]))))

    def _greatest(self, means: list[float], spreads: list[float]) -> float:
        """The expected maximum over ranks; `spreads`: variances less what is common to all ranks."""
        if len(means) == 1:
            return means[0]
        if means[0] < MANY:
            return _expected_maximum(
                [at_most(mean, max(spread, 0.0)) for mean, spread in zip(means, spreads, strict=True)]
            )
        most = mean = spread = 0.0
        for count in range(1, len(means) + 1):
            mean += means[count - 1]
            spread += spreads[count - 1]
            most = max(most, mean / count + self._scores[count] * sqrt(max(spread, 0.0) / count))
        return most


def at_most(mean: float, variance: float) -> list[float]:
    """P(number <= 0, 1, 2...), up to nearly 1, under a binomial law of this mean and nearly this variance.

    The number of its trials is whole.  Variance = mean: Poisson.
    """
    if mean <= 0.0:
        return [1.0]
    trials = ceil(mean / max(1.0 - variance / mean, RARE) - 1e-6)
    trials = max(trials, ceil(mean - RARE))
    chance = mean / trials
    if chance >= 1.0 - RARE:
        return [0.0] * trials + [1.0]
    each = total = exp(trials * log1p(-chance))
    found = [each]
    while len(found) <= trials and (each > RARE or len(found) <= mean):
        each *= (trials - len(found) + 1) * chance / (len(found) * (1.0 - chance))
        total += each
        found.append(total)
    return [min(value / total, 1.0) for value in found]


def _expected_maximum(laws: list[list[float]]) -> float:
    """Of independent numbers, from their P(number <= 0, 1, 2...)."""
    most = 0.0
    for number in range(max(len(law) for law in laws)):
        below = 1.0
        for law in laws:
            below *= law[number] if number < len(law) else 1.0
        most += 1.0 - below
    return most
