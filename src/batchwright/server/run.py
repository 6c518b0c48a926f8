"""The socket, the signals, the end.

The socket is bound first, so that a port that is taken is known at once.  Until the model is loaded,
clients are told to wait.  On SIGTERM or Ctrl-C nobody is let in any more; those that run have `grace`
seconds; then the process ends, with 0.  A second signal ends the grace.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from types import FrameType
from typing import Final

import uvicorn

from batchwright.engines.live import Live
from batchwright.errors import InputError
from batchwright.server.app import Service, Site
from batchwright.server.asked import Reader, Tokenizes
from batchwright.server.desk import Desk, Patience
from batchwright.server.metrics import Metrics
from batchwright.server.worker import Outcome, Worker

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
LINGER: Final = 5  # seconds that clients have to take their last bytes
SWITCH: Final = 1e-4  # seconds after which the engine's thread gets Python back from the loop


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to serve.  `grace`, times in seconds; `max_body`: bytes."""

    name: str
    host: str = "127.0.0.1"
    port: int = 8000
    grace: float = 30.0
    max_body: int = 4 << 20
    api_key: str | None = None
    logs_requests: bool = False
    patience: Patience = field(default_factory=Patience)


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens; `port` 0: on any that is free.  Raises InputError if that cannot be."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(
            f"cannot listen on {host}:{port} ({reason}); give another --host or --port"
        ) from None


def is_local(host: str) -> bool:
    """Can only this machine reach `host`?"""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class Serving:
    """One server, from the loading of its engine to its end."""

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        load: Callable[[], tuple[Live, Tokenizes]],
        say: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._load = load
        self._say = say
        self._metrics = Metrics(settings.name)
        self.site = Site(
            settings.name,
            self._metrics,
            most_bytes=settings.max_body,
            api_key=settings.api_key,
            logs=settings.logs_requests,
        )
        self._worker = Worker(self._loaded, self._tell, self._done)
        self._desk: Desk | None = None
        self._live: Live | None = None
        self._tokenizer: Tokenizes | None = None
        self._error: BaseException | None = None
        self._num_signals = 0

    def run(self) -> None:
        """Serve until a signal comes.  Raises what the engine died of."""
        interval = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH)
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self._run())
        finally:
            sys.setswitchinterval(interval)
        if self._error is not None:
            raise self._error

    @property
    def is_computing(self) -> bool:
        """Is the engine's thread still in a step, or loading?"""
        return self._worker.is_alive

    def stop(self) -> None:
        """As a signal does.  From any thread."""
        self._loop.call_soon_threadsafe(self._signalled)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ends = asyncio.Event()
        config = uvicorn.Config(
            self.site.app,
            lifespan="off",
            log_config=None,
            access_log=False,
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=LINGER,
        )
        server = _Server(config)
        with self._signals():
            self._worker.start()
            closing = asyncio.ensure_future(self._close(server))
            await server.serve(sockets=[self._listener])
            closing.cancel()
        self._worker.stop()
        if self._desk is not None:  # else it is still loading, and ends with the process
            await asyncio.to_thread(self._worker.join, LINGER)

    async def _close(self, server: uvicorn.Server) -> None:
        """After a signal: let those that run end, then the server."""
        await self._ends.wait()
        if self._desk is not None and self._error is None:
            await self._desk.close(self._settings.grace)
        server.should_exit = True

    # --- the engine's thread --------------------------------------------------

    def _loaded(self) -> Live:
        self._live, self._tokenizer = self._load()
        return self._live

    def _tell(self, outcome: Outcome) -> None:
        self._call(self._deliver, outcome)

    def _done(self, error: BaseException | None) -> None:
        if error is None:
            self._call(self._open)
        else:
            self._call(self._fail, error)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(function, *arguments)

    # --- the loop -------------------------------------------------------------

    def _open(self) -> None:
        """The model is loaded."""
        live, tokenizer = self._live, self._tokenizer
        assert live is not None and tokenizer is not None, "it is not loaded"
        self._metrics.watch(live)
        self._desk = Desk(self._worker, live, self._metrics, self._settings.patience)
        limits = live.batch.limits
        reader = Reader(tokenizer, limits, self._settings.name, live.engine.now)
        self.site.service = Service(reader=reader, desk=self._desk, limits=limits)
        self._say("ready")

    def _deliver(self, outcome: Outcome) -> None:
        assert self._desk is not None, "a step ran before the model was loaded"
        self._desk.deliver(outcome)

    def _fail(self, error: BaseException) -> None:
        """The engine's thread has died."""
        self._error = error
        if self._desk is not None:
            self._desk.fail("the engine has failed; the server ends")
        self._ends.set()

    def _signalled(self) -> None:
        self._num_signals += 1
        self._ends.set()
        if self._num_signals > 1 and self._desk is not None:
            self._desk.cancel_all()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Take the signals of the process, where that can be: in its main thread."""

        def handle(number: int, frame: FrameType | None) -> None:
            self._loop.call_soon_threadsafe(self._signalled)

        try:
            before = {each: signal.signal(each, handle) for each in SIGNALS}
        except ValueError:
            before = {}
        yield
        for each, handler in before.items():
            signal.signal(each, handler)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, which takes half the time of asyncio's own for each token; it has none for Windows."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


class _Server(uvicorn.Server):
    """Leaves the signals alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
