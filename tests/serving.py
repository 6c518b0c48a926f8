"""A server in a thread, clients for it, and what a request gets that runs alone."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from batchwright import Limits, Linear, Request
from batchwright.checkpoint.stream import TextStream
from batchwright.engines.engine import Engine
from batchwright.engines.live import Live
from batchwright.engines.mock import Mock
from batchwright.engines.sequence import Sequence
from batchwright.policies import policy as policy_of
from batchwright.server.nonsense import VOCABULARY, Nonsense
from batchwright.server.run import Serving, Settings, bind

FAST = Linear(base=2e-4)
NONSENSE = Nonsense()
SIZES = Limits(max_num_seqs=32, max_num_batched_tokens=256, max_model_len=512, num_kv_blocks=512)


def mock(limits: Limits = SIZES, cost: Any = FAST, is_real: bool = True) -> Mock:
    return Mock(
        cost,
        num_kv_blocks=limits.blocks,
        block_size=limits.block_size,
        max_model_len=limits.longest,
        vocab_size=VOCABULARY,
        is_real=is_real,
    )


@dataclass
class Served:
    """A server that runs."""

    serving: Serving
    live: Live
    url: str
    port: int
    client: httpx.Client
    said: list[str] = field(default_factory=list)

    def post(self, path: str, body: dict[str, Any], **more: Any) -> httpx.Response:
        return self.client.post(path, json=body, **more)

    def complete(self, **body: Any) -> dict[str, Any]:
        """The answer to a completion, greedy unless it says otherwise."""
        reply = self.post("/v1/completions", {"prompt": "Hello", "temperature": 0, **body})
        assert reply.status_code == 200, reply.text
        found: dict[str, Any] = reply.json()
        return found

    def refused(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """The status and OpenAI's error object."""
        reply = self.post(path, body)
        assert reply.json().keys() == {"error"}
        return reply.status_code, reply.json()["error"]

    def metric(self, name: str, **labels: str) -> float:
        """A sample of /metrics."""
        return metrics(self.client.get("/metrics").text)[name, tuple(sorted(labels.items()))]

    def until(self, holds: Any, seconds: float = 20.0) -> None:
        """Wait until `holds()`."""
        wait_until(holds, seconds)


def wait_until(holds: Any, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.002)


def metrics(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Samples by name and labels, without `model_name`."""
    from prometheus_client.parser import text_string_to_metric_families

    return {
        (s.name, tuple(sorted((k, v) for k, v in s.labels.items() if k != "model_name"))): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


@contextmanager
def served(
    policy: Any = "vllm",
    *,
    engine: Engine | None = None,
    limits: Limits = SIZES,
    gate: threading.Event | None = None,
    **settings: Any,
) -> Iterator[Served]:
    """A server on a free port; `gate`: the model is loaded when it is set.

    At the end the batch must be empty, with all KV blocks back.
    """
    listener = bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    live = Live(policy_of(policy) if isinstance(policy, str) else policy, engine or mock(limits), limits)

    def load() -> tuple[Live, Nonsense]:
        assert gate is None or gate.wait(20)
        return live, NONSENSE

    said: list[str] = []
    serving = Serving(Settings(name="mock", **{"grace": 5.0, **settings}), listener, load, said.append)
    errors: list[BaseException] = []
    thread = threading.Thread(target=_run, args=(serving, errors))
    thread.start()
    url = f"http://127.0.0.1:{port}"
    try:
        with httpx.Client(base_url=url, timeout=30, trust_env=False) as client:
            if gate is None:
                wait_until(lambda: client.get("/health").status_code == 200)
            yield Served(serving, live, url, port, client, said)
    finally:
        if gate is not None:
            gate.set()
        serving.stop()
        thread.join(30)
    assert not thread.is_alive() and not errors, errors
    live.batch.check()
    assert live.blocks.free == live.blocks.size, "KV blocks were not given back"
    assert all(s.is_closed for s in live._sequences.values()), "a request was lost"


def _run(serving: Serving, errors: list[BaseException]) -> None:
    try:
        serving.run()
    except BaseException as error:
        errors.append(error)


# --- alone ------------------------------------------------------------------------------


def alone(prompt: list[int], max_tokens: int, limits: Limits = SIZES) -> list[int]:
    """The tokens that a greedy request gets which runs alone, to `max_tokens` or the end of text."""
    live = Live(policy_of("vllm"), mock(limits, is_real=False), limits)
    s = Sequence(Request(0, 0.0, len(prompt), max_tokens), prompt, stop_ids=NONSENSE.eos_ids)
    live.add(s)
    live.drain()
    while live.step() or live.wait():
        pass
    return s.tokens


def text_of(prompt: list[int], tokens: list[int], stops: tuple[str, ...] = ()) -> str:
    """The text that a client is shown."""
    stream = TextStream(NONSENSE, prompt, stops=stops)
    shown = "".join(stream.push(token) for token in tokens if token not in NONSENSE.eos_ids)
    return shown + stream.flush()


# --- events -----------------------------------------------------------------------------


def events(reply: httpx.Response) -> list[dict[str, Any]]:
    """The events of a stream, which ends with [DONE]."""
    assert reply.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in reply.text.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines) and lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


@dataclass
class Heard:
    """What a raw client got.  `texts`: one per event."""

    status: int = 0
    texts: list[str] = field(default_factory=list)
    reason: str | None = None
    error: dict[str, Any] | None = None
    is_done: bool = False


async def listen(port: int, body: dict[str, Any], *, hang_up_after: int | None = None) -> Heard:
    """Stream a completion; hang up after so many events (0: as soon as it was asked)."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        _send(writer, body)
        await writer.drain()
        return await _hear(reader, hang_up_after)
    finally:
        writer.transport.abort()


def _send(writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
    data = json.dumps({"temperature": 0, "stream": True, **body}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)


async def _hear(reader: asyncio.StreamReader, hang_up_after: int | None) -> Heard:
    heard = Heard()
    if hang_up_after == 0:
        return heard
    heard.status = int((await reader.readline()).split()[1])
    if heard.status != 200:
        return heard
    async for line in reader:
        if line.startswith(b"data: {"):
            _note(heard, json.loads(line[6:]))
            if hang_up_after is not None and len(heard.texts) >= hang_up_after:
                return heard
        elif line.startswith(b"data: [DONE]"):
            heard.is_done = True
            return heard
    return heard


def _note(heard: Heard, event: dict[str, Any]) -> None:
    heard.error = event.get("error")
    for choice in event.get("choices", ()):
        heard.texts.append(choice["text"])
        heard.reason = choice["finish_reason"] or heard.reason


# --- a process ---------------------------------------------------------------------------


@dataclass
class Process:
    popen: subprocess.Popen[str]
    lines: list[str]
    url: str

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Its exit status after a signal."""
        self.popen.send_signal(number)
        return self.popen.wait(30)


@contextmanager
def process(*flags: str, engine: str = "mock", until: str = "ready", **environment: str) -> Iterator[Process]:
    """A server that has said so much: a line that begins with `until`; its lines go on to be read."""
    popen = subprocess.Popen(
        [sys.executable, "-m", "batchwright", "serve", "--engine", engine, "--port", "0", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | environment,
    )
    assert popen.stdout is not None
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(iter(popen.stdout.readline, "")))  # type: ignore[union-attr]
    reader.start()
    try:
        wait_until(lambda: any(line.startswith(until) for line in lines) or popen.poll() is not None, 120.0)
        assert popen.poll() is None, lines
        found = re.search(r"http://\S+:\d+", lines[0])
        assert found is not None
        yield Process(popen, lines, found[0])
    finally:
        popen.kill()
        popen.wait()
        reader.join()
        popen.stdout.close()
