"""Serve a small load with vLLM itself, and keep what its operator would have: the log and the metrics.

    python -m tests_vllm.server_files FOLDER

writes server.log (start-up lines, iteration details, the state every second), steps.csv (our stat
logger) and metrics.txt (scrapes of /metrics, one after the other, each under its time).  The model is a
tiny Llama with random weights on one thread; its KV cache is too small for the load, so that it preempts.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import Request, urlopen

from tests_vllm.engine_run import MODEL, SETTINGS

REQUESTS: Final = 24
GAP: Final = 0.08  # seconds between two of them
SCRAPE: Final = 0.4
BLOCKS: Final = 14  # of 32 tokens, the null block included
COMMAND: Final = (
    "-m vllm.entrypoints.openai.api_server --host 127.0.0.1 --served-model-name tiny --load-format dummy "
    "--skip-tokenizer-init --enforce-eager --enable-logging-iteration-details --max-num-seqs 8 "
    "--max-num-batched-tokens 256 --max-model-len 256 --block-size 32 --no-async-scheduling "
    f"--num-gpu-blocks-override {BLOCKS}"
).split()


def serve(folder: Path, work: Path) -> None:
    """Write the files into `folder`; what is not kept lies in `work`."""
    (work / "model").mkdir()
    (work / "model" / "config.json").write_text(json.dumps(MODEL))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | SETTINGS | {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_LOGGING_LEVEL": "INFO", "VLLM_LOG_STATS_INTERVAL": "1",
        "BATCHWRIGHT_STEP_LOG": str(work / "steps"), "VLLM_CPU_KVCACHE_SPACE": "1", "NO_COLOR": "1",
    }  # fmt: skip
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, *COMMAND, "--port", str(port), "--model", "model"],
            env=environment, cwd=work, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            address = f"http://127.0.0.1:{port}"
            _wait_for(address, process)
            _load(address, folder / "metrics.txt")
        finally:
            process.terminate()
            process.wait(60)
    (file,) = (work / "steps").iterdir()
    shutil.copy(file, folder / "steps.csv")


def _wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        if process.poll() is not None:
            raise SystemExit("vLLM has ended")
        try:
            urlopen(f"{address}/health", timeout=5).close()
            return
        except (URLError, OSError):
            time.sleep(1)
    raise SystemExit("vLLM did not start within 10 minutes")


def _load(address: str, metrics: Path) -> None:
    with ThreadPoolExecutor(REQUESTS + 1) as pool, metrics.open("wb") as out:
        answers = [pool.submit(_complete, address, number) for number in range(REQUESTS)]
        while not all(answer.done() for answer in answers):
            out.write(_scrape(address))
            time.sleep(SCRAPE)
        for answer in answers:
            answer.result()
        time.sleep(2.0)
        out.write(_scrape(address))


def _complete(address: str, number: int) -> None:
    time.sleep(number * GAP)
    prompt = [7] * 32 + [9 + number] * (32 + 8 * (number % 5))  # the first block is shared
    body = {
        "model": "tiny", "prompt": prompt, "max_tokens": 48 + 16 * (number % 3), "ignore_eos": True,
        "temperature": 0, "return_token_ids": True, "detokenize": False,
    }  # fmt: skip
    sent = Request(
        f"{address}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    urlopen(sent, timeout=600).close()


def _scrape(address: str) -> bytes:
    now = time.time()
    with urlopen(f"{address}/metrics", timeout=60) as answer:
        text: bytes = answer.read()
    return f"{now:.3f}\n".encode() + text


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        serve(place, Path(folder))
