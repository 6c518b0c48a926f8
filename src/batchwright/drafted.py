"""What a step costs where a draft guesses and the model verifies.

    seconds(step)                         the model: prompts, decodes and the drafts that they verify
    + draft of the same step              the draft reads what the model has read, and guesses one token
    + draft of k - 1 steps of one row     and one more token with each further step
      for every row that has yielded a token

A decode that verifies d drafts is priced as `step` says: as a decode, and d tokens of a prompt that
follow it, so that weights are read once, and KV once a row.  Any cost model prices that.
The context of prompts that end in the step is left out of the k - 1 steps.
"""

from __future__ import annotations

from batchwright.cost import CostModel, Hosted, Stretch, stretch_of
from batchwright.drafts import Drafts
from batchwright.speculation import Speculation
from batchwright.step import Step


def drafted(cost: CostModel, drafts: Drafts | None) -> CostModel:
    """`cost` with the time of the draft, which is the device's; `cost` itself where there is none."""
    if drafts is None or drafts.speculation.draft == 0.0:
        return cost
    speculation = drafts.speculation
    if isinstance(cost, Hosted):
        return Hosted(Drafted(cost.cost, speculation), cost.base, cost.per_running)
    return Drafted(cost, speculation)


class Drafted:
    """The device's time of one step, that of the draft included."""

    def __init__(self, cost: CostModel, speculation: Speculation) -> None:
        draft = speculation.draft
        self._model: Stretch = stretch_of(cost)
        if isinstance(draft, (int, float)):
            self._draft, self._share = stretch_of(cost), float(draft)
        else:
            self._draft, self._share = stretch_of(draft), 1.0
        self._further = speculation.num_speculative_tokens - 1
        self._step = Step()

    def seconds(self, step: Step) -> float:
        return self._model(step, 1) + self._share * (self._draft(step, 1) + self._rest(step))

    def _rest(self, step: Step) -> float:
        rows = step.sampled_rows - step.draft_tokens
        if self._further == 0 or rows == 0:
            return 0.0
        self._step.quiet(rows, 0, step.context_tokens + rows)
        return self._draft(self._step, self._further)
