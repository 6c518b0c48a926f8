"""The thread in which the engine steps.

Commands come over a queue, and are obeyed between steps; what a step did goes to the event loop in one
call.  When there is nothing to do, the thread sleeps in the queue until a command or the policy's alarm.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final

from batchwright.engines.live import Live
from batchwright.engines.sequence import Sequence
from batchwright.errors import PolicyError
from batchwright.request import NEVER

LOG: Final = logging.getLogger("batchwright.server")
KEPT: Final = 100_000  # steps that the log grows to
QUIET: Final = 1.0  # seconds without work, before an audit
Command = Callable[[Live], object]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step did.  `now`: seconds on the engine's clock, when it ended.

    `tokens`: one for each of `sampled`.  `ended`: after them.
    """

    now: float
    num_computed: int
    sampled: list[Sequence]
    tokens: list[int]
    ended: list[Sequence]


class Worker:
    """Loads the engine, then steps until it is told to stop.  `tell` and `done` are called in it.

    `done`: with None when the engine is loaded; with the error when the thread dies of one.
    """

    def __init__(
        self,
        load: Callable[[], Live],
        tell: Callable[[Outcome], None],
        done: Callable[[BaseException | None], None],
    ) -> None:
        self._thread = Thread(target=self._run, name="engine", daemon=True)
        self._load = load
        self._tell = tell
        self._done = done
        self._commands: SimpleQueue[Command] = SimpleQueue()
        self._runs = True
        self._is_draining = False
        self._is_audited = True
        self._last_step = 0
        self._forgotten = 0  # steps

    def start(self) -> None:
        """Begin to load."""
        self._thread.start()

    def do(self, command: Command) -> None:
        """Call `command` with the driver, between two steps.  From any thread."""
        self._commands.put(command)

    def drain(self) -> None:
        """No more sequences will come."""
        self.do(self._drain)

    def stop(self) -> None:
        """End the thread, after the step in flight."""
        self.do(self._stop)

    def join(self, timeout: float) -> None:
        """Wait for the end of the thread, at most so many seconds."""
        self._thread.join(timeout)

    @property
    def is_alive(self) -> bool:
        """Has the thread not ended?"""
        return self._thread.is_alive()

    # --- in the thread --------------------------------------------------------

    def _run(self) -> None:
        try:
            live = self._load()
            self._done(None)
            while self._runs:
                self._turn(live)
        except BaseException as error:
            self._done(error)

    def _turn(self, live: Live) -> None:
        """A step, if there is one, then what was asked meanwhile."""
        try:
            runs = live.step()
        except Exception as error:  # of the policy, which may be the user's own code
            self._restart(live, error)
            runs = True
        except SystemExit as error:
            self._restart(live, PolicyError(f"the policy exits, with {error.code}; let it return"))
            runs = True
        self._report(live)
        if runs:
            self._is_audited = False
        else:
            self._sleep(live)
        while not self._commands.empty():
            self._obey(live, self._commands.get())

    def _obey(self, live: Live, command: Command) -> None:
        try:
            command(live)
        except Exception as error:
            self._restart(live, error)

    def _report(self, live: Live) -> None:
        ticks = live.batch.tick_count
        if live.sampled or live.ended or ticks != self._last_step:
            ended = list(live.ended)
            live.ended.clear()
            tokens = [s.tokens[-1] for s in live.sampled]
            computed = live.num_computed if ticks != self._last_step else 0
            self._tell(Outcome(live.batch.now, computed, live.sampled, tokens, ended))
            self._log_errors(ended)
        self._last_step = ticks
        if ticks - self._forgotten >= KEPT:
            live.forget()
            self._forgotten = ticks

    def _log_errors(self, ended: list[Sequence]) -> None:
        for error in {id(s.error): s.error for s in ended if s.error is not None}.values():
            LOG.error("a step failed, and its requests with it", exc_info=error)

    def _restart(self, live: Live, error: Exception) -> None:
        live.restart(error)
        self._forgotten = 0
        if self._is_draining:
            live.drain()

    # --- between steps --------------------------------------------------------

    def _sleep(self, live: Live) -> None:
        """Until a command comes, or the next event is due."""
        is_idle = not live.batch.running and live.batch.num_waiting == 0
        audits = is_idle and not self._is_audited
        wait = min(live.alarm - live.engine.now(), QUIET if audits else NEVER)
        try:
            command = self._commands.get(timeout=None if wait == NEVER else max(wait, 0.0))
        except Empty:
            if audits:
                self._audit(live)
            return
        self._obey(live, command)

    def _audit(self, live: Live) -> None:
        """The batch is empty: are all its blocks back?"""
        self._is_audited = True
        try:
            live.batch.check()
            assert live.blocks.free == live.blocks.size, "an empty batch holds KV blocks"
        except AssertionError as error:
            LOG.error("the empty batch is not as it should be; it begins anew", exc_info=error)
            self._restart(live, error)

    def _drain(self, live: Live) -> None:
        self._is_draining = True
        live.drain()

    def _stop(self, live: Live) -> None:
        self._runs = False
