"""A roofline over several pipeline stages, data-parallel ranks or ranks of experts.

One step is a round: one token for every row of every rank.

- **Ranks.**  Each of the `dp` ranks has rows, chunks and contexts of its own, and all wait for the
  one with the most.  Counts are balanced: ceil(rows / dp) rows, ceil(chunks / dp) chunks of mean size.
  Contexts are independent, so of m rows each the longest sum is that of the mean times

      1 + z context_cv / sqrt(m)          z: expected maximum of as many normal numbers as ranks

- **Stages.**  The rows of a rank, and its prompt tokens, are cut evenly into k = min(pp, tokens)
  micro-batches.  Each goes through all stages, and each stage serves all of them, so a round lasts

      max(time of one micro-batch through all stages + (pp - 1) sends, k * slowest stage)

  The slowest is one with the most layers, or the last, which has the output head.
- **Experts.**  The tokens of a micro-batch of all ranks meet at the experts; see `experts`.

Source: pipelines, GPipe, Huang et al. 2019 (arXiv 1811.06965); ranks that wait for one another, in
inference, arXiv 2601.17855.
"""

from __future__ import annotations

from math import sqrt

from batchwright.cost.attention import Attention, Seen, seen_whole
from batchwright.cost.experts import Router, normal_scores
from batchwright.cost.lines import sum_of_greatest
from batchwright.hardware import Coefficients, Model, Spread
from batchwright.step import Step


class Part:
    """The work of one micro-batch of the busiest rank."""

    __slots__ = ("all_tokens", "count", "growth", "kv_tokens", "pair_growth", "pairs", "sampled", "tokens")

    def __init__(self) -> None:
        self.count = 1  # micro-batches
        self.tokens = 0.0  # of the busiest rank
        self.all_tokens = 0  # of all ranks
        self.sampled = 0
        self.pairs = 0.0  # of a query and a key
        self.kv_tokens = 0.0  # KV tokens read and written
        self.growth = 0.0  # of these in the next quiet step
        self.pair_growth = 0.0  # and of the pairs


class Parallel:
    """The seconds of a step, and of a stretch of quiet ones."""

    def __init__(
        self,
        unit: Coefficients,
        spread: Spread,
        model: Model,
        attention: Attention | None,
        pp: int,
        dp: int,
        fixed_seconds: float,
        router_skew: float,
        context_cv: float,
    ) -> None:
        self._unit = unit
        self._spread = spread
        self._attention = attention
        self._pp = pp
        self._dp = dp
        self._fixed = fixed_seconds
        self._cv = context_cv
        self._scores = normal_scores(dp)
        self._router: Router | None = None
        if model.moe_layers:
            self._router = Router(model.experts, model.active_experts, spread.ranks, router_skew)
        self._most_layers = -(-model.layers // pp) / model.layers  # share of all
        self._last_layers = model.layers // pp / model.layers

    def stretch(self, step: Step, steps: int) -> float:
        rows = step.num_decodes + step.padded_rows
        if rows + step.prefill_tokens == 0:
            return steps * self._fixed
        part = self._busiest(step, rows)
        return sum_of_greatest(self._lines(part), steps)

    def _busiest(self, step: Step, rows: int) -> Part:
        """Rows and context of a micro-batch, then its share of the chunks."""
        part = Part()
        own = _ceil(rows, self._dp)
        all_chunks = max(step.num_chunks, 1 if step.prefill_tokens else 0)
        chunks = _ceil(all_chunks, self._dp)
        share = chunks / all_chunks if all_chunks else 0.0  # of the prompt tokens, this rank's
        prompt = step.prefill_tokens * share
        part.count = count = max(min(self._pp, own + int(prompt)), 1)
        own = _ceil(own, count)
        part.tokens = own + prompt / count
        part.all_tokens = _ceil(rows + step.prefill_tokens, count)
        part.sampled = _ceil(step.sampled_rows, self._dp * count)
        seen = seen_whole(step) if self._attention is None else self._attention.seen(step)
        self._add_attention(part, seen, rows, own, share)
        part.kv_tokens += part.tokens
        if chunks:
            part.kv_tokens += _past(seen.past * share, prompt, chunks, count)
        return part

    def _add_attention(self, part: Part, seen: Seen, rows: int, own: int, share: float) -> None:
        """Pairs and KV tokens of its `own` rows, and the pairs of its share of the chunks."""
        absorbed = 1.0 if self._attention is None else self._attention.absorbed
        if rows:
            longest = own * (1.0 + self._scores[min(self._dp, rows)] * self._cv / sqrt(own))
            part.growth = longest * seen.growth
            part.kv_tokens = longest * seen.context / rows
        part.pair_growth = absorbed * part.growth
        part.pairs = absorbed * part.kv_tokens
        part.pairs += absorbed * own + seen.pairs * share / part.count

    def _lines(self, part: Part) -> list[tuple[float, float]]:
        """Seconds of the round, now and per further step, in turn for each thing that may bound it."""
        unit, spread, tokens = self._unit, self._spread, part.tokens
        compute, memory, sent = spread.token * tokens, unit.core, spread.gather * part.all_tokens
        if self._router is not None:
            used = self._router.used(part.all_tokens)
            compute += spread.used * used
            memory += spread.expert * self._router.touched(part.all_tokens)
            sent += spread.dispatch * used
        sent += spread.reduced * (unit.hops + unit.transfer * tokens) + spread.latency
        head_compute, head = unit.sample * part.sampled, unit.head if part.sampled else 0.0
        layers = self._fixed + sent
        through = layers + max(compute + head_compute, memory + head)
        through += (self._pp - 1) * (spread.hop + spread.send * tokens)
        lines = self._with_attention(part, through, 1.0)
        if part.count > 1:
            most, last = self._most_layers, self._last_layers
            slow = most * (layers + max(compute, memory))
            lines += self._with_attention(part, part.count * slow, part.count * most)
            slow = last * layers + max(last * compute + head_compute, last * memory + head)
            lines += self._with_attention(part, part.count * slow, part.count * last)
        return lines

    def _with_attention(self, part: Part, rest: float, share: float) -> list[tuple[float, float]]:
        pair, read = share * self._unit.pair, share * self._unit.read
        return [
            (rest + pair * part.pairs, pair * part.pair_growth),
            (rest + read * part.kv_tokens, read * part.growth),
        ]


def _past(past: float, prompt: float, chunks: int, count: int) -> float:
    """KV tokens that the chunks of one of `count` micro-batches start from.

    Fewer chunks than micro-batches are cut into pieces, and a piece reads those before it as well.
    """
    cut = min(chunks, count)
    return past / cut + prompt / cut * (1.0 - cut / count) / 2


def _ceil(whole: int, parts: int) -> int:
    return -(-whole // parts)
