"""Who is answered, with which tokens, until when: the side of the event loop.

An answer is open from the moment its sequence is handed to the engine until the engine says that it has
ended.  Its client may be gone by then: that cancels the sequence, which then ends with the next step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from batchwright.engines.live import Live
from batchwright.engines.sequence import Sequence
from batchwright.errors import RequestError
from batchwright.server.asked import Asked
from batchwright.server.metrics import Metrics
from batchwright.server.refusal import Refusal
from batchwright.server.worker import Outcome, Worker

RETRY: Final = 1  # seconds after which a client may try again


@dataclass(frozen=True, kw_only=True)
class Patience:
    """max_queue: requests that may wait for their first step; request_timeout: seconds, or None."""

    max_queue: int = 1000
    request_timeout: float | None = None


class Answer:
    """What the client of one request gets.

    `texts`: of the tokens that it has not been sent yet.  `finish_reason`: stop or length, with the last
    of them.  `refusal`: why there is no more, if it ended otherwise.
    """

    def __init__(self, asked: Asked, is_streamed: bool) -> None:
        self.asked = asked
        self.sequence = asked.sequence
        self.texts: list[str] = []
        self.finish_reason = ""
        self.refusal: Refusal | None = None
        self.first = -1.0  # seconds at which its client saw the first token,
        self.last = -1.0  # and the last one so far
        self.preemptions = 0  # that were counted
        self.alarm: asyncio.TimerHandle | None = None
        self._is_streamed = is_streamed
        self._news = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """Does nothing more come?"""
        return self.finish_reason != "" or self.refusal is not None

    async def news(self) -> None:
        """Return when there is something to send: a text, for who streams, or the end."""
        await self._news.wait()
        self._news.clear()

    def add(self, token: int) -> None:
        """Another token."""
        self.texts.append(self._text(token))
        if self._is_streamed:
            self._news.set()

    def finish(self, reason: str) -> None:
        """All its tokens are there."""
        rest = self.asked.text.flush()
        if rest:
            self.texts[-1] += rest
        self.finish_reason = reason
        self._news.set()

    def refuse(self, refusal: Refusal) -> None:
        """It ends without its last token."""
        if not self.is_over:
            self.refusal = refusal
            self._news.set()

    def _text(self, token: int) -> str:
        if token in self.sequence.stop_ids:
            return ""
        pieces = self.asked.pieces
        return self.asked.text.push(token) if pieces is None else pieces.popleft()


class Desk:
    """The answers of one server.  All of it runs in the event loop."""

    def __init__(self, worker: Worker, live: Live, metrics: Metrics, patience: Patience) -> None:
        self._worker = worker
        self._live = live
        self._metrics = metrics
        self._patience = patience
        self._answers: dict[Sequence, Answer] = {}
        self._is_closed = False
        self._empty = asyncio.Event()
        self._empty.set()

    def check_open(self) -> None:
        """Raises Refusal when nobody is let in any more."""
        if self._is_closed:
            raise Refusal(503, "the server is shutting down", retry_after=RETRY)

    def open(self, asked: Asked) -> Answer:
        """Hand `asked` to the engine.  Raises Refusal if too many wait, or the server ends."""
        self.check_open()
        self._check_room()
        s = asked.sequence
        answer = Answer(asked, asked.is_streamed and self._live.batch.is_streamed)
        self._answers[s] = answer
        self._empty.clear()
        timeout = self._patience.request_timeout
        if timeout is not None:
            answer.alarm = asyncio.get_running_loop().call_later(timeout, self._expire, answer)
        self._worker.do(lambda live: live.add(s))
        return answer

    def leave(self, answer: Answer) -> None:
        """The client of `answer` reads no more."""
        self._cancel(answer, Refusal(499, "the client has gone"))

    def deliver(self, outcome: Outcome) -> None:
        """Hand out what a step did."""
        if outcome.num_computed:
            self._metrics.step(outcome.num_computed, len(outcome.tokens))
        now, answers = outcome.now, self._answers
        for s, token in zip(outcome.sampled, outcome.tokens, strict=True):
            answer = answers[s]
            self._count(answer, now)
            answer.add(token)
        for s in outcome.ended:
            self._end(answers.pop(s), now)
        if not answers:
            self._empty.set()

    async def close(self, grace: float) -> None:
        """Let nobody in, and return when all answers are over, or cancelled after `grace` seconds."""
        self._is_closed = True
        self._worker.drain()
        try:
            await asyncio.wait_for(self._empty.wait(), grace)
        except TimeoutError:
            self.cancel_all()

    def cancel_all(self) -> None:
        """The server does not wait any longer."""
        for answer in list(self._answers.values()):
            self._cancel(answer, Refusal(503, "the server is shutting down", retry_after=RETRY))

    def fail(self, message: str) -> None:
        """The engine is gone."""
        self._is_closed = True
        for answer in self._answers.values():
            answer.refuse(Refusal(500, message))
        self._answers.clear()
        self._empty.set()

    # --- inside ---------------------------------------------------------------

    def _check_room(self) -> None:
        most = self._patience.max_queue
        waiting = sum(1 for s, answer in self._answers.items() if s.started < 0 and not answer.is_over)
        if waiting >= most:
            raise Refusal(
                503, f"{waiting} requests wait, and --max-queue is {most}; try again later", retry_after=RETRY
            )

    def _expire(self, answer: Answer) -> None:
        seconds = self._patience.request_timeout
        self._cancel(answer, Refusal(504, f"the request took longer than --request-timeout, {seconds:g} s"))

    def _cancel(self, answer: Answer, refusal: Refusal) -> None:
        if answer.is_over or answer.sequence not in self._answers:
            return
        answer.refuse(refusal)
        self._worker.do(_cancels(answer.sequence))

    def _count(self, answer: Answer, now: float) -> None:
        """Another token of `answer` is there."""
        s, is_seen = answer.sequence, self._live.batch.is_streamed
        if answer.last < 0:
            self._metrics.first_token(s)
            if is_seen:
                self._metrics.seen_first(now - s.request.arrival)
            answer.first = now
        elif is_seen:
            self._metrics.seen_next(now - answer.last)
        answer.last = now
        self._count_preemptions(answer)

    def _count_preemptions(self, answer: Answer) -> None:
        times = answer.sequence.request.preemptions
        if times > answer.preemptions:
            self._metrics.preempted(times - answer.preemptions)
            answer.preemptions = times

    def _end(self, answer: Answer, now: float) -> None:
        s = answer.sequence
        if answer.alarm is not None:
            answer.alarm.cancel()
        self._count_preemptions(answer)
        self._metrics.end(s.finish_reason)
        if s.finish_reason in ("stop", "length"):
            self._complete(answer, now)
        else:
            answer.refuse(_failure(s))

    def _complete(self, answer: Answer, now: float) -> None:
        arrival, num_tokens = answer.sequence.request.arrival, len(answer.sequence.tokens)
        if self._live.batch.is_streamed:
            tpot = (answer.last - answer.first) / (num_tokens - 1) if num_tokens > 1 else None
            self._metrics.complete(answer.last - arrival, tpot)
        else:
            self._metrics.seen_first(now - arrival)
            self._metrics.complete(now - arrival, None)
        if answer.refusal is None:
            answer.finish(answer.sequence.finish_reason)


def _cancels(s: Sequence) -> Callable[[Live], None]:
    def cancel(live: Live) -> None:
        if not s.is_closed:
            live.cancel(s.request)

    return cancel


def _failure(s: Sequence) -> Refusal:
    """What the client of a sequence is told that did not get its last token."""
    if isinstance(s.error, RequestError):
        return Refusal(400, str(s.error))
    kind = type(s.error).__name__ if s.error is not None else "cancelled"
    return Refusal(500, f"the request failed in a step ({kind}); the server's log says more")
