"""vLLM's server with our scheduler in its engine process, and our stat logger in its front end."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from tests_vllm.engine_run import LIMITS, MODEL, SETTINGS

BATCH, IDLE = 3, 1.0
SERVE = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Its address, and where its logs are."""
    folder = tmp_path_factory.mktemp("server")
    model, logs = folder / "model", folder / "logs"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(MODEL))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = [
        *(
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--served-model-name",
            "tiny",
            "--load-format",
            "dummy",
        ),
        *(
            "--skip-tokenizer-init",
            "--enforce-eager",
            "--enable-logging-iteration-details",
            "--no-enable-prefix-caching",
        ),
        *("--scheduler-cls", "batchwright.engines.vllm.Static"),
        *("--additional-config", json.dumps({"batchwright": {"batch_size": BATCH, "idle": IDLE}})),
    ]
    for name, value in LIMITS.items():
        if not isinstance(value, bool):
            flags += [f"--{name.replace('_', '-')}", str(value)]
    environment = (
        os.environ | SETTINGS | {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "BATCHWRIGHT_STEP_LOG": str(logs)}
    )
    process = subprocess.Popen([*SERVE, "--model", str(model), *flags], env=environment)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(address, process)
        yield address, logs
    finally:
        process.terminate()
        process.wait(60)


def wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        assert process.poll() is None, "vLLM has ended"
        try:
            urlopen(f"{address}/health", timeout=5).close()
            return
        except (URLError, OSError):
            time.sleep(1)
    raise AssertionError("vLLM did not start within 5 minutes")


def complete(address: str, number: int) -> float:
    """When the answer came."""
    body = {
        "model": "tiny", "prompt": [5 + number] * 20, "max_tokens": 4, "ignore_eos": True, "temperature": 0,
        "return_token_ids": True, "detokenize": False,
    }  # fmt: skip
    sent = Request(
        f"{address}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urlopen(sent, timeout=120) as answer:
        assert json.load(answer)["usage"]["completion_tokens"] == 4
    return time.monotonic()


def test_requests_start_in_batches_and_every_step_is_logged(server: tuple[str, Path]) -> None:
    address, logs = server
    with ThreadPoolExecutor() as pool:
        begin = time.monotonic()
        list(pool.map(lambda number: complete(address, number), range(BATCH + 1)))
    assert time.monotonic() - begin >= IDLE  # for the one that was left
    (file,) = logs.iterdir()
    for _ in range(30):  # until vLLM writes out its statistics
        steps = file.read_text().splitlines()[1:]
        if len(steps) >= 8:
            break
        time.sleep(1)
    rows = [line.split(",") for line in steps]
    assert [(int(row[3]), int(row[4])) for row in rows] == [
        (20 * BATCH, 0), *[(0, BATCH)] * 3, (20, 0), *[(0, 1)] * 3
    ]  # fmt: skip
