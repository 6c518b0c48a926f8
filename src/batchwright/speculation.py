"""Speculative decoding: a draft guesses tokens, and one step of the model verifies them.

A decode verifies up to k draft tokens in a step, beside the one token that it would compute anyway.
Those before the first wrong guess are accepted, and the model itself gives the next token: a step
brings 1 to k + 1 tokens, and on average, if a guess is right with probability a,

    (1 - a^(k + 1)) / (1 - a)

Whether a guess is right is drawn once for every token of a request, from its own seed: the outcome
belongs to the load, like the output length.  It is the same whatever is scheduled when, for another
k, and again after a preemption; no policy can read it before it has happened.

Source: Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", ICML 2023
(arXiv 2211.17192), section 3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

from batchwright.config import ordinary
from batchwright.errors import InputError
from batchwright.request import Request
from batchwright.step import Step


class DraftModel(Protocol):
    """The cost of a step of the draft model, as in `cost.Cost`."""

    def seconds(self, step: Step) -> float: ...


Draft = float | DraftModel | Callable[[Step], float]


@ordinary
@dataclass(frozen=True, kw_only=True)
class Speculation:
    """How a server speculates.

    num_speculative_tokens  drafts per decode and step, k
    acceptance              probability that a draft token is right, if those before it are
    acceptance_spread       standard deviation of that among requests, which then follows Beta
    draft                   cost of a step of the draft: a share of the model's, or a cost model of its own;
                            0: drafts are free, as from n-grams
    acceptance_seed         of the guesses

    Raises InputError on a value that cannot be.
    """

    num_speculative_tokens: int
    acceptance: float
    acceptance_spread: float = 0.0
    draft: Draft = 0.0
    acceptance_seed: int = 0

    def __post_init__(self) -> None:
        check_speculation("speculation", self)

    def rate(self, random: Random) -> float:
        """The acceptance of one request."""
        spread = self.acceptance_spread
        if spread == 0.0:
            return self.acceptance
        mean = self.acceptance
        size = mean * (1.0 - mean) / (spread * spread) - 1.0
        return random.betavariate(mean * size, (1.0 - mean) * size)


def check_speculation(name: str, flags: object) -> None:
    """The fields of a `Speculation` must be what they say.  Raises InputError with `name` in front.

    They are read as objects: what a user gave may be of any type, whatever the field says.
    """
    values: dict[str, object] = vars(flags)
    tokens, seed = values["num_speculative_tokens"], values["acceptance_seed"]
    if not _is_whole(tokens, 1):
        raise InputError(
            f"{name}: num_speculative_tokens is {tokens!r}, but must be a whole number of at least 1"
        )
    if not _is_whole(seed, 0):
        raise InputError(f"{name}: acceptance_seed is {seed!r}, but must be a whole number of at least 0")
    acceptance = _share(name, "acceptance", values["acceptance"])
    spread = _share(name, "acceptance_spread", values["acceptance_spread"])
    most = (acceptance * (1.0 - acceptance)) ** 0.5  # no distribution on 0 to 1 has more
    if spread >= most and spread > 0.0:
        raise InputError(
            f"{name}: acceptance_spread is {spread:g}, but around an acceptance of {acceptance:g} must be "
            f"below {most:.4g}; lower it"
        )
    draft = values["draft"]
    if not callable(getattr(draft, "seconds", draft)):
        _share(name, "draft", draft)


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _share(name: str, flag: str, value: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0.0 <= value <= 1.0:
        return float(value)
    model = ", or a cost model" if flag == "draft" else ""
    raise InputError(f"{name}: {flag} is {value!r}, but must be a number from 0 to 1{model}")


def mean_tokens(acceptance: float, num_speculative_tokens: int) -> float:
    """Tokens that a decode gains in a step on average, far from its end.

    Source: Leviathan et al. 2023, equation 1.
    """
    if acceptance == 1.0:
        return num_speculative_tokens + 1.0
    return float((1.0 - acceptance ** (num_speculative_tokens + 1)) / (1.0 - acceptance))


class Guesses:
    """Which tokens the draft guesses.  The simulator's alone."""

    def __init__(self, speculation: Speculation) -> None:
        self._speculation = speculation

    def accepted(self, r: Request, position: int, most: int) -> int:
        """Right guesses in a row from the token at `position` of the output on, at most `most`."""
        if not r.guessed:
            r.guessed = self._draw(r)
        guessed = r.guessed
        count = 0
        while count < most and guessed[position + count] > 0:
            count += 1
        return count

    def _draw(self, r: Request) -> bytes:
        """One byte for every token of the output; other loads have other arrivals, so other guesses."""
        seed = self._speculation.acceptance_seed
        random = Random(f"{seed} {r.id} {float(r.arrival).hex()} {r.prompt}")
        rate = self._speculation.rate(random)
        return bytes([random.random() < rate for _ in range(r.true_output)])
