"""Real clients on `batchwright serve`: each ends without an error, its counts are the server's, and
`batchwright import` reads the file that it wrote.

    make test-clients

GUIDELLM and AIPERF name their programs, which live in environments of their own; CLIENTS_ENGINE is the
engine (default: openvino).  The default model must be in the cache: `batchwright model get`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from batchwright import imported
from batchwright.checkpoint import Checkpoint, find
from batchwright.cli.model import cache_folder
from batchwright.imported.report import spreads
from serving import Process, metrics, process

ENGINE = os.environ.get("CLIENTS_ENGINE", "openvino")
REQUESTS, PROMPT, OUTPUT = 20, 64, 16


@pytest.fixture(scope="module")
def model() -> Checkpoint:
    cache = os.environ.get("BATCHWRIGHT_CACHE")
    needs = "openvino" if ENGINE == "mock" else ENGINE
    return find(None, needs, cache_folder(None if cache is None else Path(cache)))


@pytest.fixture(scope="module")
def server(model: Checkpoint) -> Iterator[Process]:
    flags = ["--path", str(model.tokenizer_dir)] if ENGINE == "mock" else []
    with process(*flags, engine=ENGINE) as found:
        yield found


def program(variable: str, name: str) -> str:
    """The program that the environment names, or the one on the path."""
    found = os.environ.get(variable) or shutil.which(name)
    if not found:
        pytest.skip(f"{name} is not installed: make test-clients, or name it in {variable}")
    return found


def counts(server: Process) -> dict[str, float]:
    """What the server has counted: prompt and output tokens, and ends by reason."""
    found = metrics(httpx.get(f"{server.url}/metrics").text)
    reasons = ("stop", "length", "abort", "error")
    return {
        "prompt": found["vllm:prompt_tokens_total", ()],
        "output": found["vllm:generation_tokens_total", ()],
        **{each: found["vllm:request_success_total", (("finished_reason", each),)] for each in reasons},
    }


def since(server: Process, before: dict[str, float]) -> dict[str, float]:
    return {name: value - before[name] for name, value in counts(server).items()}


def run(command: list[str], folder: Path, **environment: str) -> None:
    done = subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def check_import(file: Path, metrics: set[str]) -> None:
    """The file has all requests and these metrics, says that the cap of 4 is its load, and breaks nothing."""
    found = imported.read(file)
    assert found.totals["num_completed"] == REQUESTS and found.totals["output_tokens"] == REQUESTS * OUTPUT
    assert spreads(found).keys() == metrics
    assert [one.text for one in found.findings if one.is_wrong] == []
    assert any("closed loop" in one.text for one in found.findings)


def test_openai(server: Process) -> None:
    before = counts(server)
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        name = client.models.list().data[0].id
        messages: Any = [{"role": "user", "content": "What is the capital of France?"}]
        whole = client.chat.completions.create(model=name, messages=messages, max_tokens=12, temperature=0)
        parts = list(
            client.chat.completions.create(
                model=name,
                messages=messages,
                max_tokens=12,
                temperature=0,
                stream=True,
                stream_options={"include_usage": True},
            )
        )
        text = client.completions.create(model=name, prompt="Once upon a time", max_tokens=8, seed=1)
        assert "".join(p.choices[0].delta.content or "" for p in parts if p.choices) == (
            whole.choices[0].message.content
        )
        assert whole.usage is not None and text.usage is not None
        assert parts[-1].usage is not None and parts[-1].usage.total_tokens == whole.usage.total_tokens
        with pytest.raises(openai.BadRequestError, match="n is 2"):
            client.completions.create(model=name, prompt="a", n=2)
    found = since(server, before)
    assert found["output"] == 2 * whole.usage.completion_tokens + text.usage.completion_tokens
    assert found["prompt"] == 2 * whole.usage.prompt_tokens + text.usage.prompt_tokens
    assert found["abort"] == found["error"] == 0


def test_guidellm(server: Process, model: Checkpoint, tmp_path: Path) -> None:
    before = counts(server)
    command = [
        *(program("GUIDELLM", "guidellm"), "run"),
        *("--backend", f"kind=openai_http,target={server.url}"),
        *("--tokenizer", f"kind=huggingface_auto,model={model.tokenizer_dir}"),
        *("--profile", "kind=concurrent,streams=4"),
        *("--constraint", f"kind=max_requests,count={REQUESTS}"),
        *("--data", f"kind=synthetic_text,prompt_tokens={PROMPT},output_tokens={OUTPUT}"),
        *("--output", "kind=json,path=guidellm.json"),
        "--disable-console",
    ]
    run(command, tmp_path, HF_HUB_OFFLINE="1")
    said = read(tmp_path / "guidellm.json")["benchmarks"][0]["metrics"]
    found = since(server, before)
    assert said["request_totals"] == {
        "successful": REQUESTS, "errored": 0, "incomplete": 0, "total": REQUESTS,
    }  # fmt: skip
    assert said["prompt_token_count"]["successful"]["total_sum"] == found["prompt"]
    assert said["output_token_count"]["successful"]["total_sum"] == found["output"] == REQUESTS * OUTPUT
    assert found["length"] == REQUESTS and found["abort"] == found["error"] == 0
    check_import(tmp_path / "guidellm.json", {"ttft_s", "tpot_s", "e2e_s"})


def test_aiperf(server: Process, model: Checkpoint, tmp_path: Path) -> None:
    before = counts(server)
    command = [
        *(program("AIPERF", "aiperf"), "profile", "--model", model.name, "--url", server.url),
        *("--endpoint-type", "completions", "--streaming", "--tokenizer", str(model.tokenizer_dir)),
        *("--request-count", str(REQUESTS), "--concurrency", "4"),
        *("--isl", str(PROMPT), "--osl", str(OUTPUT)),
        *("--extra-inputs", "ignore_eos:true", "--extra-inputs", "temperature:0"),
        *("--use-server-token-count", "--ui", "none", "--output-artifact-dir", str(tmp_path)),
    ]
    run(command, tmp_path)
    said = read(tmp_path / "profile_export_aiperf.json")
    found = since(server, before)
    assert said["error_summary"] == [] and said["request_count"]["avg"] == REQUESTS
    assert said["total_usage_prompt_tokens"]["avg"] == found["prompt"]
    assert said["total_usage_completion_tokens"]["avg"] == found["output"] == REQUESTS * OUTPUT
    assert found["length"] == REQUESTS and found["abort"] == found["error"] == 0
    check_import(tmp_path / "profile_export.jsonl", {"ttft_s", "tpot_s", "itl_s", "e2e_s"})
