"""Seconds from the layers of a model, each measured by itself.

    all layers ( matrices and norms of the tokens + attention )
    + experts of the tokens + what the GPUs send one another
    + output head and sampler of the sampled rows + a constant

Matrices run on the tokens that a captured graph has, up to its largest: those of the next captured size.
Attention is a table over (prompt tokens, KV tokens they start from, decodes, mean context), and longer
by `Skew` where contexts differ.  Several chunks of one step count as one that attends to as many pairs.
Host time, and gaps between kernels, are in no table: they are in the constant, or left out.

With `dp` ranks a step is a round; the busiest has ceil(rows / dp) rows of mean context and ceil(chunks /
dp) chunks, and the others wait for it.  Experts get the tokens of all ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from batchwright.cost.checks import check_not_negative
from batchwright.cost.curve import Curve
from batchwright.cost.experts import Router
from batchwright.cost.features import Range, outside
from batchwright.cost.grid import Grid, along, sum_along
from batchwright.cost.skew import Skew
from batchwright.step import Step


@dataclass(frozen=True)
class ExpertTimes:
    """Seconds of all routed experts of all layers on one rank.

    `seconds`: over (tokens, distinct experts, 0, 0).  `is_whole`: were the tokens counted before the
    router, all of them, or only those with an expert of this rank?
    """

    seconds: Grid
    experts: int
    active: int
    ranks: int = 1
    is_whole: bool = True

    def __reduce__(self) -> tuple[object, ...]:
        return ExpertTimes, (self.seconds, self.experts, self.active, self.ranks, self.is_whole)


@dataclass(frozen=True)
class LayerTimes:
    """Seconds of one rank, all layers added up.

    matrices   by tokens: what every token passes through, attention and experts left out
    head       by sampled rows: output head and sampler
    attention  over (prompt tokens, KV tokens they start from, decodes, mean context)
    hops, transfer   what GPUs send: per step that computes anything, and per token
    gather     the same to and from experts on other ranks, per token of all ranks
    """

    matrices: Curve
    head: Curve
    attention: Grid
    skew: Skew
    experts: ExpertTimes | None = None
    hops: float = 0.0
    transfer: float = 0.0
    gather: float = 0.0
    dp: int = 1

    def __reduce__(self) -> tuple[object, ...]:
        tables = (self.matrices, self.head, self.attention, self.skew, self.experts)
        return LayerTimes, (*tables, self.hops, self.transfer, self.gather, self.dp)


@dataclass(frozen=True)
class Layers:
    """Seconds from the layers of a model, each measured by itself; see `layers`.

    `name`: what they were read from.  `step_seconds`: what every step takes beside.  `tp`, `ep`: how
    the model is split, which is in the times.
    Raises CostError if that is negative.
    """

    name: str
    times: LayerTimes = field(repr=False, compare=False)
    step_seconds: float = 0.0
    tp: int = 1
    ep: bool = False
    _router: Router | None = field(init=False, repr=False, compare=False)
    _lines: dict[int, list[float]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_not_negative("layers", "step_seconds", self.step_seconds)
        experts = self.times.experts
        router = None if experts is None else Router(experts.experts, experts.active, experts.ranks)
        object.__setattr__(self, "_router", router)
        object.__setattr__(self, "_lines", {})

    def __reduce__(self) -> tuple[object, ...]:
        return Layers, (self.name, self.times, self.step_seconds, self.tp, self.ep)

    @property
    def range(self) -> Range:
        """The least and the greatest of each feature of a step that was measured, on one rank."""
        prefill, past, decodes, context = (axis.points[-1] for axis in self.times.attention.axes)
        return {
            "tokens": (1.0, float(self.times.matrices.last)),
            "num_decodes": (0.0, decodes),
            "mean_context": (0.0, context),
            "sampled_rows": (0.0, float(self.times.head.last)),
            "mean_chunk": (0.0, prefill),
            "mean_past": (0.0, past),
        }

    def outside(self, step: Step) -> list[str]:
        """The features of `step` beyond what was measured, for which the time is extrapolated.

        With several data-parallel ranks those of all of them together, which is early.
        """
        return outside(step, self.range)

    @property
    def reads_extremes(self) -> bool:
        """It reads the least and the greatest context of a step."""
        return True

    def seconds(self, step: Step) -> float:
        return self.stretch(step, 1)

    def stretch(self, step: Step, steps: int) -> float:
        rows = step.num_decodes + step.padded_rows
        own = -(-rows // self.times.dp)
        prefill = self._own_prefill(step)
        tokens = own + int(prefill)
        if tokens == 0:
            return steps * self.step_seconds
        sampled = -(-max(step.sampled_rows, step.num_decodes + step.num_chunks) // self.times.dp)
        each = self.step_seconds + self.times.matrices.at(tokens) + self.times.head.at(sampled)
        each += self.times.hops + self.times.transfer * tokens
        if self._router is not None:
            each += self._experts(tokens * self.times.dp)
        if prefill > 0.0:
            each += self._mixed(step, prefill, rows, own)
            if steps == 1:
                return each
            return steps * each  # a stretch has no prompt tokens; a caller's own may
        if steps == 1:
            return each + self._decodes(step, rows, own, 1)
        return steps * each + self._decodes(step, rows, own, steps)

    def _own_prefill(self, step: Step) -> float:
        """Prompt tokens of the busiest rank."""
        if step.prefill_tokens == 0 or self.times.dp == 1:
            return float(step.prefill_tokens)
        chunks = max(step.num_chunks, 1)
        return step.prefill_tokens * (-(-chunks // self.times.dp) / chunks)

    def _experts(self, tokens: int) -> float:
        experts, router = self.times.experts, self._router
        if experts is None or router is None:
            return 0.0
        used = float(tokens) if experts.is_whole else router.used(tokens) / experts.active
        return experts.seconds.at(used, router.touched(tokens), 0.0, 0.0) + self.times.gather * tokens

    # --- attention ------------------------------------------------------------

    def _decodes(self, step: Step, rows: int, own: int, steps: int) -> float:
        """Attention of so many quiet steps."""
        line = self._lines.get(own)
        if line is None:
            self._lines[own] = line = self.times.attention.line(float(own))
        axis = self.times.attention.axes[3]
        mean, greatest = step.context_tokens / rows, float(step.greatest_context)
        if greatest <= mean or own == 1:
            return along(axis, line, mean) if steps == 1 else sum_along(axis, line, mean, steps)
        rate = (mean - step.least_context) / (greatest - step.least_context)
        total, done, skew = 0.0, 0, self.times.skew
        while done < steps:
            now = greatest + done
            alpha = skew.alpha(0.0, float(own), rate, now, 0.0)
            edge = skew.edge(now) - now
            count = steps - done if edge >= steps - done else int(edge) + 1
            at_mean = sum_along(axis, line, mean + done, count)
            total += at_mean
            if alpha != 0.0:
                total += alpha * (sum_along(axis, line, now, count) - at_mean)
            done += count
        return total

    def _mixed(self, step: Step, prefill: float, rows: int, own: int) -> float:
        """Attention of one step with prompt tokens."""
        grid, count = self.times.attention, float(own)
        past = step.prefill_attention / step.prefill_tokens - 0.5 * prefill
        edges = grid.edges(prefill, max(past, 0.0), count)
        mean = step.context_tokens / rows if rows > 0 else 0.0
        at_mean = grid.on(edges, mean)
        total = at_mean
        if past < 0.0:  # several chunks attend to fewer pairs than one of all their tokens
            per_token = (grid.at(prefill, prefill, count, mean) - at_mean) / prefill
            total = max(at_mean + past * per_token, at_mean / max(step.num_chunks, 1))
        greatest = float(step.greatest_context)
        if greatest <= mean or own <= 1:
            return total
        rate = (mean - step.least_context) / (greatest - step.least_context)
        alpha = self.times.skew.alpha(prefill, count, rate, greatest, max(past, 0.0))
        return total if alpha == 0.0 else total + alpha * (grid.on(edges, greatest) - at_mean)
