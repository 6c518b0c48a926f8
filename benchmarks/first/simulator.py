"""Run a policy against a cost model in simulated time."""

from __future__ import annotations

from collections.abc import Callable

from first.batch import Batch, Request

Policy = Callable[[Batch], None]
StepTime = Callable[[int, int, int], float]


class Simulator:
    """Replays `requests` (by arrival) through `policy`; times come from `step_time`.

    `step_time(prefill_tokens, decodes, context_tokens)` returns seconds.
    """

    def __init__(self, requests: list[Request], batch: Batch, policy: Policy, step_time: StepTime) -> None:
        self.requests = requests
        self.batch = batch
        self.policy = policy
        self.step_time = step_time
        self.skip = True
        self.num_steps = 0
        self.num_decisions = 0
        self.itl = [0] * 10_000  # decode steps weighted by tokens, by 0.1 ms
        self._arrived = 0
        self._unfinished = len(requests)
        self._due: dict[int, list[Request]] = {}

    def run(self) -> None:
        b = self.batch
        while self._unfinished > 0:
            while self._next_arrival() <= b.now:
                r = self.requests[self._arrived]
                self._arrived += 1
                b.enqueue(r, r.arrival)
            if b.num_running == 0 and b.num_waiting == 0:
                b.now = self._next_arrival()
                continue
            b.edited = False
            self.policy(b)
            self.num_decisions += 1
            self._advance()

    def _next_arrival(self) -> float:
        if self._arrived == len(self.requests):
            return 1e18
        return self.requests[self._arrived].arrival

    def _advance(self) -> None:
        """Run the step that the policy left, and repeat it until an event."""
        b = self.batch
        prefill = 0
        context = 0
        for c in b.chunks:
            prefill += c.tokens
            context += c.request.computed
        arrival = self._next_arrival()
        event = False
        while not event:
            began = b.now
            decodes = b.num_decoding if b.decodes_run else 0
            b.now += self.step_time(prefill, decodes, context + (b.context if decodes > 0 else 0))
            self.num_steps += 1
            event = not self.skip or b.edited
            if decodes > 0:
                self.itl[min(int((b.now - began) * 1e4), 9_999)] += decodes
                b.tick()
                if b.tick_count in self._due:
                    for r in self._due.pop(b.tick_count):
                        if r.due == b.tick_count and r.state == 2:  # else preempted since
                            b.finish(r)
                            self._unfinished -= 1
                            event = True
            event = event or b.now >= arrival or b.decode_blocks() > b.free_blocks
        for c in b.chunks:
            if b.fill(c):
                self._sampled(c.request)
        b.chunks.clear()

    def _sampled(self, r: Request) -> None:
        """`r` got the token that ends its prefill: finish it or let it decode."""
        b = self.batch
        if r.generated == 1:
            r.first_token = b.now
        if r.generated == r.output:
            b.finish(r)
            self._unfinished -= 1
            return
        b.decode(r)
        r.due = b.tick_count + r.output - r.generated
        due = self._due.get(r.due)
        if due is None:
            self._due[r.due] = [r]
        else:
            due.append(r)


def h100_8b(prefill_tokens: int, decodes: int, context_tokens: int) -> float:
    """Seconds for one step of an 8B model on an H100 (illustrative constants)."""
    return 5.0e-3 + 2.0e-5 * prefill_tokens + 1.0e-5 * decodes + 4.0e-8 * context_tokens
