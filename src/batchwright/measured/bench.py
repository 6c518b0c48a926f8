"""Serve requests on an engine, step by step, under a policy: what a calibration and a run share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from batchwright.contract import Begins, Policy
from batchwright.cost import CostModel
from batchwright.engines.engine import Engine
from batchwright.engines.live import Live, unknown
from batchwright.engines.sequence import Sequence
from batchwright.limits import Limits
from batchwright.measured.between import Between
from batchwright.measured.recorder import Recorder
from batchwright.measured.samples import Samples
from batchwright.request import Request

Prompt = Callable[[Request], list[int]]  # token ids
Ended = Callable[[int], None]  # how many have ended


@dataclass(frozen=True)
class Bench:
    """An engine, the limits it runs under (settled by its capacity), and what makes prompts for it."""

    engine: Engine
    limits: Limits
    prompt: Prompt

    def serve(
        self,
        policy: Policy | Begins,
        requests: Iterable[Request],
        limits: Limits | None = None,
        cost: CostModel = unknown,
        ended: Ended | None = None,
        between: Between | None = None,
    ) -> tuple[Live, Samples]:
        """Serve `requests` and their followers to the end.  Outputs have the lengths of the requests.

        The prompts of `requests` are made before the clock starts.  `cost`: what policies are told.
        `between`: what happens between two steps, on no clock; None: pulses.
        Raises what the policy or the engine raises.
        """
        ready = {r: self._sequence(r) for r in requests}
        recorder = Recorder(self.engine, between)
        live = Live(
            policy, recorder, limits or self.limits, cost, lambda r: ready.pop(r, None) or self._sequence(r)
        )
        live.feed(list(ready))
        count = 0
        while live.step() or live.wait():
            if not live.ended:
                continue
            count += len(live.ended)
            _check(live.ended)
            live.ended.clear()
            if ended is not None:
                ended(count)
        live.flush()
        return live, recorder.samples

    def _sequence(self, r: Request) -> Sequence:
        return Sequence(r, self.prompt(r), r.true_output)


def _check(ended: Iterable[Sequence]) -> None:
    for s in ended:
        if s.error is not None:
            raise s.error
