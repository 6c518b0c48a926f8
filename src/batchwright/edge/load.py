"""The loads of edge cases: short requests, and long prompts among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from batchwright.workload import Workload

SHORT_PROMPT: Final = (64, 256)  # tokens, every length alike
SHORT_OUTPUT: Final = (32, 128)
LONG_OUTPUT: Final = (128, 256)


@dataclass(frozen=True, kw_only=True)
class Mix:
    """Poisson arrivals of `requests` short ones, and of prompts of `long_tokens` as long as these come.

    Rates are requests/s of one server; `servers` have as many times both.  Priority 0 is short, 1 long.
    """

    requests: int
    short_rate: float
    long_rate: float
    long_tokens: int
    servers: int = 1

    @property
    def longest_short(self) -> int:
        return SHORT_PROMPT[1] + SHORT_OUTPUT[1]

    @property
    def longest(self) -> int:
        """Tokens of the longest request."""
        return self.long_tokens + LONG_OUTPUT[1] if self.long_rate else self.longest_short

    @property
    def short_prompt(self) -> float:
        """Mean tokens."""
        return sum(SHORT_PROMPT) / 2

    @property
    def short_output(self) -> float:
        """Mean tokens."""
        return sum(SHORT_OUTPUT) / 2

    def load(self, seed: int) -> Workload:
        """The requests.  What is short does not depend on the long ones."""
        random = np.random.Generator(np.random.PCG64(seed))
        short = np.cumsum(random.exponential(1 / (self.short_rate * self.servers), self.requests))
        prompt = _uniform(random, SHORT_PROMPT, self.requests)
        output = _uniform(random, SHORT_OUTPUT, self.requests)
        late = self._long_arrivals(random, float(short[-1]))
        arrival = np.concatenate((short, late))
        order = np.argsort(arrival, kind="stable")
        is_long = np.concatenate((np.zeros(len(short), np.int64), np.ones(len(late), np.int64)))
        prompts = np.concatenate((prompt, np.full(len(late), self.long_tokens)))
        outputs = np.concatenate((output, _uniform(random, LONG_OUTPUT, len(late))))
        most = np.where(is_long == 1, LONG_OUTPUT[1], SHORT_OUTPUT[1])
        return Workload.from_columns(
            arrival[order],
            prompts[order],
            outputs[order],
            max_tokens=most[order],
            priority=is_long[order],
            name="short and long",
        )

    def _long_arrivals(self, random: np.random.Generator, until: float) -> npt.NDArray[np.float64]:
        """One at least, if there is a rate of them, and none while the last short ones come."""
        if not self.long_rate:
            return np.empty(0)
        rate = self.long_rate * self.servers
        count = max(round(rate * until), 1)
        return np.sort(random.uniform(0.05 * until, 0.95 * until, count))


def is_long_in(load: Workload) -> npt.NDArray[np.bool_]:
    """Which requests of a mix are long, by id."""
    assert load.priority is not None
    found: npt.NDArray[np.bool_] = load.priority > 0
    return found


def _uniform(random: np.random.Generator, bounds: tuple[int, int], count: int) -> npt.NDArray[np.int64]:
    return random.integers(bounds[0], bounds[1] + 1, count)
