"""`batchwright serve` as a process: what it prints, how it ends."""

# ruff: noqa: E402  what the server needs may not be installed: then there is nothing to import
from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

for module in ("starlette", "uvicorn", "prometheus_client", "httpx"):
    pytest.importorskip(module, reason=f"{module} is not installed: pip install 'batchwright[serve]' httpx")

import httpx

from batchwright.checkpoint import find
from batchwright.cli import main
from batchwright.cli.model import cache_folder
from batchwright.errors import InputError
from batchwright.server.bodies import ChatBody, CompletionBody
from serving import metrics, process, served, wait_until

pytestmark = pytest.mark.pure

SLOW = ["--mock-cost", "linear(base=0.02)"]
LONG = {"prompt": "Hello", "temperature": 0, "ignore_eos": True, "stream": True}


class Stream:
    """A stream that is read in a thread."""

    def __init__(self, url: str, tokens: int) -> None:
        self.text = ""
        self._body = {**LONG, "max_tokens": tokens}
        self._url = url
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        wait_until(lambda: self.text)

    def all(self) -> str:
        self._thread.join(30)
        return self.text

    def _read(self) -> None:
        with httpx.stream("POST", f"{self._url}/v1/completions", json=self._body, timeout=30) as reply:
            for part in reply.iter_text():
                self.text += part


def test_sigterm_lets_in_nobody_finishes_what_runs_and_exits_0() -> None:
    with process(*SLOW) as server:
        stream = Stream(server.url, 60)
        server.popen.send_signal(signal.SIGTERM)

        def is_closed() -> bool:
            return httpx.get(f"{server.url}/health").status_code == 503

        wait_until(is_closed)
        refused = httpx.post(f"{server.url}/v1/completions", json={"prompt": "a"})
        assert refused.status_code == 503 and "retry-after" in refused.headers
        assert stream.all().count("data: {") == 60 and '"finish_reason":"length"' in stream.text
        assert stream.text.endswith("data: [DONE]\n\n")
        assert server.popen.wait(30) == 0


@pytest.mark.parametrize("how", ["the grace is over", "a second signal"])
def test_what_still_runs_when_the_grace_ends_gets_an_error_event_and_the_exit_is_0(how: str) -> None:
    with process(*SLOW, "--grace", "0.2" if how == "the grace is over" else "60") as server:
        stream = Stream(server.url, 8000)
        server.popen.send_signal(signal.SIGTERM)
        if how == "a second signal":
            wait_until(lambda: httpx.get(f"{server.url}/health").status_code == 503)
            server.popen.send_signal(signal.SIGTERM)
        assert server.popen.wait(30) == 0
        assert '"error":{"message":"the server is shutting down"' in stream.all()
        assert stream.text.endswith("data: [DONE]\n\n")


def test_ctrl_c_of_an_idle_server_exits_0_with_no_traceback() -> None:
    with process() as server:
        assert server.stop(signal.SIGINT) == 0
    assert not any("Traceback" in line for line in server.lines)


def test_a_signal_makes_a_policy_that_waits_for_a_full_batch_run_who_waits() -> None:
    with process(*SLOW, "--policy", "static(batch_size=8, streamed=true)") as server:
        waiting = threading.Thread(target=lambda: replies.append(_complete(server.url)))
        replies: list[httpx.Response] = []
        waiting.start()
        wait_until(lambda: _gauge(server.url, "vllm:num_requests_waiting") == 1)
        assert server.stop() == 0
        waiting.join(30)
        assert replies[0].json()["usage"]["completion_tokens"] == 3


def _complete(url: str) -> httpx.Response:
    body = {"prompt": "a", "max_tokens": 3, "ignore_eos": True}
    return httpx.post(f"{url}/v1/completions", json=body, timeout=30)


def _gauge(url: str, name: str) -> float:
    return metrics(httpx.get(f"{url}/metrics").text)[name, ()]


def test_policy_limits_name_and_key_are_taken_from_the_flags(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from batchwright.policies import Vllm\npolicy = Vllm()\n", encoding="utf-8")
    flags = ["--policy-file", str(file), "--max-model-len", "64", "--served-model-name", "mine"]
    flags += ["--num-gpu-blocks-override", "101", "--no-enable-prefix-caching"]
    with process(*flags, BATCHWRIGHT_API_KEY="secret") as server:
        headers = {"authorization": "Bearer secret"}
        assert httpx.get(f"{server.url}/v1/models").status_code == 401
        model = httpx.get(f"{server.url}/v1/models", headers=headers).json()["data"][0]
        assert model["id"] == "mine" and model["max_model_len"] == 64
        info = next(
            name for name in metrics(httpx.get(f"{server.url}/metrics").text) if "cache_config" in name[0]
        )
        assert dict(info[1]) == {
            "block_size": "16",
            "num_gpu_blocks": "100",
            "enable_prefix_caching": "False",
        }
        assert not any("secret" in line for line in server.lines)


def test_a_policy_that_asks_what_a_step_takes_is_told_the_cost_of_the_mock() -> None:
    with process("--policy-file", str(PAGE.parent.parent / "examples" / "custom_policy.py")) as server:
        assert _complete(server.url).json()["usage"]["completion_tokens"] == 3


def test_a_signal_while_steps_are_measured_ends_at_once_with_0() -> None:
    """Though the engine's thread is in native code."""
    pytest.importorskip("openvino", reason="needs the extra live")
    given = os.environ.get("BATCHWRIGHT_CACHE")
    try:
        find(None, "openvino", cache_folder(Path(given) if given else None))
    except InputError as error:
        pytest.skip(str(error))
    flags = ["--calibrate", "--threads", "1", "--max-num-seqs", "4"]
    with process(*flags, engine="openvino", until="calibrates") as server:
        assert httpx.get(f"{server.url}/health").status_code == 503
        assert server.stop() == 0
    assert not any("held out" in line or "Traceback" in line for line in server.lines)


def refusal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    """The one line with which the command refuses its flags."""
    monkeypatch.setattr(sys, "argv", ["batchwright", "serve", "--engine", "mock", *flags])
    with pytest.raises(SystemExit) as end:
        main()
    lines = capsys.readouterr().err.splitlines()
    assert end.value.code == 2 and len(lines) == 1
    return lines[0]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--engine", "moc"], "did you mean 'mock'"),
        (["--policy", "vlm"], "did you mean 'vllm'"),
        (["--policy", "vllm", "--policy-file", "x.py"], "--policy-file"),
        (["--policy-file", "nowhere.py"], "nowhere.py"),
        (["--mock-cost", "linear(bse=1)"], "bse"),
        (["--port", "-1"], "--port"),
        (["--port", "70000"], "70000"),
        (["--grace", "-1"], "--grace"),
        (["--grace", "nan"], "--grace"),
        (["--request-timeout", "0"], "--request-timeout"),
        (["--max-queue", "0"], "--max-queue"),
        (["--max-num-seqs", "0"], "max_num_seqs"),
        (["--max-num-seqs", "900"], "max_num_batched_tokens"),
        (["--num-gpu-blocks-override", "1"], "--num-gpu-blocks-override"),
        (["--max-model-len", "0"], "max_model_len"),
        (["--calibrate"], "--mock-cost"),
        (["--weights", "q4_0"], "--weights"),
        (["--host", "300.1.1.1"], "--host"),
        (["--api-key", ""], "--api-key"),
        (["--policy", "static(batch_size=100)"], "max_num_seqs"),
    ],
)
def test_a_flag_that_cannot_be_is_one_line_and_exit_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flags: list[str], said: str
) -> None:
    assert said in refusal(monkeypatch, capsys, "--port", "0", *flags)


def test_a_port_that_is_taken_is_one_line_and_exit_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "give another" in refusal(monkeypatch, capsys, "--port", str(taken.getsockname()[1]))


def test_the_flags_are_read_without_what_serves() -> None:
    heavy = "('uvicorn', 'numpy', 'starlette')"
    code = f"import sys, batchwright.cli.app; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# --- what docs/serve.md lists -------------------------------------------------------------

PAGE = Path(__file__).resolve().parent.parent / "docs" / "serve.md"


def first_cells(title: str) -> set[str]:
    """The code in the first cells of the table under a heading."""
    text = PAGE.read_text(encoding="utf-8").split(f"## {title}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", text, flags=re.MULTILINE)
    return {code for row in rows for code in re.findall(r"`([^`]+)`", row)}


def test_every_flag_is_listed() -> None:
    help = subprocess.run(
        [sys.executable, "-m", "batchwright", "serve", "--help"], capture_output=True, text=True, check=True
    )
    assert first_cells("Flags") | {"--help"} == set(re.findall(r"--[a-z][a-z-]+", help.stdout))


def test_every_parameter_is_listed() -> None:
    known = {*CompletionBody.__struct_fields__, *ChatBody.__struct_fields__} - {"prompt", "messages"}
    assert first_cells("Parameters") == known


def test_every_metric_is_listed() -> None:
    with served() as server:
        families = re.findall(r"^# TYPE (\S+) \S+", server.client.get("/metrics").text, flags=re.MULTILINE)
    assert first_cells("Metrics") == {name for name in families if not name.endswith("_created")}
