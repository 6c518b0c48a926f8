"""What attention reads where layers have a window, or where decodes and prompts attend differently.

A layer with a window of W tokens reads at most W - 1 KV tokens of a row.  A step tells of its rows only the
sum of their contexts, so all count as of mean context c:

    read = sum over rows of min(context, W - 1)  ~  rows * min(c, W - 1)

which is exact where no row, or every row, is over the window, and else too much: at most 1.58 times the
windowed layers' part if contexts are exponential (at c = W), nothing if they are equal.  Chunks count as of
mean length and mean past likewise; one chunk alone is exact.  All layers together read the mean over them.

In a stretch the mean context grows by one a step until the window is full, and the windowed layers read the
same from then on: two straight lines.
"""

from __future__ import annotations

from math import floor

from batchwright.hardware import Coefficients, Model
from batchwright.step import Step


class Seen:
    """What one step sees, per layer on average."""

    __slots__ = ("context", "growth", "pairs", "past")

    def __init__(self, context: float, growth: float, pairs: float, past: float) -> None:
        self.context = context  # KV tokens that decodes and padded rows read
        self.growth = growth  # of it, per row, in the next quiet step
        self.pairs = pairs  # of a query of a prompt and a key
        self.past = past  # KV tokens that chunks read


def seen_whole(step: Step) -> Seen:
    """What a step sees where every layer sees all."""
    pairs = step.prefill_attention + 0.5 * step.prefill_tokens
    return Seen(float(step.context_tokens), 1.0, pairs, float(step.past_tokens))


class Attention:
    """Attention with windows, or with latent vectors whose decodes cost `absorbed` times a prompt's pair."""

    def __init__(self, model: Model, unit: Coefficients) -> None:
        self.absorbed = unit.absorbed
        self._remade = unit.remade
        self._window = float(model.window)
        self._share = model.window_layers / model.layers  # of the layers, with the window

    def steps_to_fill(self, step: Step) -> int:
        """Quiet steps until the rows' mean context is over the window; 0: it is, or there is no window."""
        rows = step.num_decodes + step.padded_rows
        if self._share == 0.0 or rows == 0:
            return 0
        room = self._window - 1.0 - step.context_tokens / rows
        return floor(room) + 1 if room >= 0.0 else 0

    def seen(self, step: Step) -> Seen:
        """What the step sees; pairs that latent attention makes of past tokens count as pairs."""
        seen = seen_whole(step)
        if self._share > 0.0:
            self._narrow(seen, step)
        seen.pairs += self._remade * step.past_tokens
        return seen

    def _narrow(self, seen: Seen, step: Step) -> None:
        """Let the windowed layers see no more than their window."""
        share, most = self._share, self._window - 1.0
        rows = step.num_decodes + step.padded_rows
        mean = step.context_tokens / rows if rows else 0.0
        if mean > most:
            seen.context += share * rows * (most - mean)
            seen.growth = 1.0 - share
        chunks = max(step.num_chunks, 1)
        past = step.past_tokens / chunks
        narrow = chunks * self._pairs_of_chunk(past, (step.prefill_tokens - step.draft_tokens) / chunks)
        narrow += step.draft_tokens * min(mean + 1.0, self._window)
        if narrow < seen.pairs:
            seen.pairs += share * (narrow - seen.pairs)
        if past > most:
            seen.past += share * chunks * (most - past)

    def _pairs_of_chunk(self, past: float, tokens: float) -> float:
        """Sum over the chunk's tokens of what each sees, itself included."""
        free = min(max(self._window - past, 0.0), tokens)  # the first tokens, which see all
        return free * past + 0.5 * free * (free + 1.0) + (tokens - free) * self._window
