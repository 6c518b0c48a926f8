"""Seconds from tables of measured operators, which separate:

    seconds = shared(tokens) + head(sampled rows)
            + prefill attention(chunks, tokens of one, KV tokens it starts from)
            + decode attention(rows, mean context)

`shared` is all that works on every token alike: matrices, norms, experts, what GPUs send.  Where an
engine runs a batch of decodes otherwise than one with prompts, such a batch has a `shared` of its own.

Chunks of one step differ.  A step tells their sums, T tokens, P KV tokens that they start from and A
pairs of a token and one that it attends to, and counts as n alike chunks that have the same three:

    n (T/n) (P/n + T/(2 n)) = A       n = T (P + T/2) / A, at least 1 and never over T

Drafts that decodes verify count as tokens, and their attention as that of their decode, whose KV it
reads at once.

Between grid points all is linear.  Beyond the last, time grows in proportion to the number that is too
great; of a chunk, to its pairs.  `outside` says where that is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from batchwright.cost.checks import LEAST
from batchwright.cost.features import Range, outside
from batchwright.cost.roofline import Roofline
from batchwright.cost.surface import Plane, Polyline, Volume
from batchwright.errors import CostError
from batchwright.step import Step


@dataclass(frozen=True, kw_only=True)
class OperatorTimes:
    """Seconds of all layers of a model on one GPU, or on GPUs that share it.

    shared    by tokens, from 1; of steps with prompt tokens
    decodes   the same of steps without
    head      by sampled rows, from 1
    prefill   over (chunks, tokens of each, KV tokens that each starts from)
    decode    over (rows, mean context), which never falls as the context grows
    context_tokens   KV tokens of all rows up to which `decode` was measured; inf: not known
    """

    shared: Polyline
    decodes: Polyline
    head: Polyline
    prefill: Volume
    decode: Plane
    context_tokens: float = inf

    def __post_init__(self) -> None:
        if min(self.shared.values) < LEAST or min(self.decodes.values) < LEAST:
            raise CostError(f"shared of a table has a value under {LEAST:g} seconds, which no step takes")
        for row in self.decode.values:
            if any(a > b for a, b in pairwise(row)):
                raise CostError("decode attention of a table falls as the context grows; it may only rise")

    def __reduce__(self) -> tuple[object, ...]:
        tables = (self.shared, self.decodes, self.head, self.prefill, self.decode)
        return _times, (*tables, self.context_tokens)

    @property
    def range(self) -> Range:
        """The least and the greatest of each feature that the tables hold."""
        prefill = self.prefill.planes[0]
        return {
            "tokens": (1.0, min(self.shared.points[-1], self.decodes.points[-1])),
            "num_decodes": (0.0, self.decode.rows[-1]),
            "context_tokens": (0.0, self.context_tokens),
            "mean_context": (0.0, self.decode.columns[-1]),
            "sampled_rows": (0.0, self.head.points[-1]),
            "num_chunks": (0.0, self.prefill.layers[-1]),
            "mean_chunk": (0.0, prefill.rows[-1]),
            "mean_past": (0.0, prefill.columns[-1]),
        }


@dataclass(frozen=True)
class Table:
    """Seconds from tables of measured operators; see the module.

    `about`: what was measured, on what, and by whom, as pairs of a name and words for the reader; two
    tables with the same words are equal.  `memory`: the same model and GPUs, which counts KV blocks; None:
    they are not in the catalogue.
    """

    times: OperatorTimes = field(repr=False, compare=False)
    about: tuple[tuple[str, str], ...]
    memory: Roofline | None = field(default=None, repr=False, compare=False)

    def __reduce__(self) -> tuple[object, ...]:
        return Table, (self.times, self.about, self.memory)

    @property
    def range(self) -> Range:
        """The least and the greatest of each feature of a step that was measured; see `features`."""
        return self.times.range

    def outside(self, step: Step) -> list[str]:
        """The features of `step` beyond the tables, for which the time is extrapolated."""
        return outside(step, self.times.range)

    def seconds(self, step: Step) -> float:
        return self.stretch(step, 1)

    def stretch(self, step: Step, steps: int) -> float:
        rows, times = step.num_decodes + step.padded_rows, self.times
        prompt = step.prefill_tokens - step.draft_tokens
        tokens = float(max(rows + step.prefill_tokens, 1))
        each = times.shared.at(tokens) if prompt > 0 else times.decodes.at(tokens)
        if step.sampled_rows:
            each += times.head.at(float(step.sampled_rows))
        if prompt > 0:
            each += self._prefill(step, float(prompt))
        if rows == 0:
            return steps * each
        return steps * each + times.decode.sum(float(rows), step.context_tokens / rows, steps)

    def _prefill(self, step: Step, prompt: float) -> float:
        """Attention of the chunks, as that of alike ones."""
        pairs, past, count = step.prefill_attention, float(step.past_tokens), float(max(step.num_chunks, 1))
        if step.draft_tokens:
            pairs -= _draft_pairs(step)
        if count > 1.0 and pairs > 0.0:
            count = min(max(prompt * (past + 0.5 * prompt) / pairs, 1.0), prompt)
        return self._alike(count, prompt / count, past / count)

    def _alike(self, count: float, chunk: float, past: float) -> float:
        plane = self.times.prefill.planes[0]
        most_chunk, most_past = plane.rows[-1], plane.columns[-1]
        if chunk <= most_chunk and past <= most_past:
            return self.times.prefill.at(count, chunk, past)
        held, start = min(chunk, most_chunk), min(past, most_past)
        ratio = chunk * (past + 0.5 * chunk) / (held * (start + 0.5 * held))
        return self.times.prefill.at(count, held, start) * ratio


def _draft_pairs(step: Step) -> float:
    """Pairs of the drafts among those of the step, as if all decodes had as many and as much context."""
    rows = max(step.num_decodes, 1)
    return step.draft_tokens * (step.context_tokens / rows + 1.0 + 0.5 * step.draft_tokens / rows)


def _times(
    shared: Polyline,
    decodes: Polyline,
    head: Polyline,
    prefill: Volume,
    decode: Plane,
    context_tokens: float,
) -> OperatorTimes:
    return OperatorTimes(
        shared=shared,
        decodes=decodes,
        head=head,
        prefill=prefill,
        decode=decode,
        context_tokens=context_tokens,
    )
