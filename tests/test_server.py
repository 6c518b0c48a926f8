"""The server as its clients see it, on an engine without a model."""

# ruff: noqa: E402  what the server needs may not be installed: then there is nothing to import
from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

for module in ("starlette", "uvicorn", "prometheus_client", "httpx"):
    pytest.importorskip(module, reason=f"{module} is not installed: pip install 'batchwright[serve]' httpx")

from batchwright import Batch, Limits, Linear
from batchwright.engines.mock import Mock
from batchwright.engines.work import Work
from batchwright.server import worker
from batchwright.server.desk import Patience
from batchwright.server.nonsense import EOS, Nonsense
from serving import FAST, NONSENSE, SIZES, Served, alone, events, listen, mock, served, text_of, wait_until

pytestmark = pytest.mark.pure

HELLO = list(b"Hello")
SLOW = Linear(base=0.02)
CHAT = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0}


@pytest.fixture(scope="module")
def server() -> Any:
    with served() as found:
        yield found


# --- answers --------------------------------------------------------------------------------


def test_an_answer_is_what_the_model_says_with_its_usage(server: Served) -> None:
    found = server.complete(max_tokens=12)
    tokens = alone(HELLO, 12)
    choice = found["choices"][0]
    assert choice == {
        "index": 0, "text": text_of(HELLO, tokens), "logprobs": None, "finish_reason": "length",
    }  # fmt: skip
    assert found["object"] == "text_completion" and found["model"] == "mock"
    usage = found["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (5, 12, 17)


def test_a_stream_has_an_event_for_each_token_and_says_the_same(server: Served) -> None:
    body = {"prompt": "Hello", "max_tokens": 12, "temperature": 0, "stream": True}
    found = events(server.post("/v1/completions", body))
    texts = [event["choices"][0]["text"] for event in found]
    assert len(texts) == 12 and "".join(texts) == text_of(HELLO, alone(HELLO, 12))
    assert [event["choices"][0]["finish_reason"] for event in found] == [None] * 11 + ["length"]
    assert all("usage" not in event for event in found)
    assert len({event["id"] for event in found}) == 1


def test_a_chat_begins_with_its_role_and_says_the_same_streamed_or_not(server: Served) -> None:
    whole = server.post("/v1/chat/completions", {**CHAT, "max_tokens": 9}).json()
    found = events(server.post("/v1/chat/completions", {**CHAT, "max_tokens": 9, "stream": True}))
    deltas = [event["choices"][0]["delta"] for event in found]
    assert deltas[0] == {"role": "assistant", "content": ""} and len(deltas) == 10
    assert {event["object"] for event in found} == {"chat.completion.chunk"}
    message = whole["choices"][0]["message"]
    assert whole["object"] == "chat.completion" and message["role"] == "assistant"
    assert "".join(delta["content"] for delta in deltas) == message["content"]
    assert found[-1]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_a_usage_comes_last_where_it_is_asked_for_and_with_every_event_if_so(
    server: Served, path: str
) -> None:
    asked = {"prompt": "Hello"} if path == "/v1/completions" else dict(CHAT)
    body = {**asked, "temperature": 0, "max_tokens": 5, "stream": True}
    once = events(server.post(path, {**body, "stream_options": {"include_usage": True}}))
    assert [event["usage"] for event in once[:-1]] == [None] * (len(once) - 1)
    assert once[-1]["choices"] == [] and once[-1]["usage"]["completion_tokens"] == 5
    options = {"include_usage": True, "continuous_usage_stats": True}
    always = events(server.post(path, {**body, "stream_options": options}))
    counts = [event["usage"]["completion_tokens"] for event in always]
    assert counts == sorted(counts) and counts[-1] == 5 and {1, 2, 3, 4, 5} <= set(counts)


def test_max_completion_tokens_goes_before_max_tokens(server: Served) -> None:
    body = {**CHAT, "max_tokens": 9, "max_completion_tokens": 4}
    assert server.post("/v1/chat/completions", body).json()["usage"]["completion_tokens"] == 4


def test_a_chat_without_a_limit_may_fill_the_context_and_a_completion_gets_16(server: Served) -> None:
    assert server.complete(ignore_eos=True)["usage"]["completion_tokens"] == 16
    body = {**CHAT, "ignore_eos": True}
    usage = server.post("/v1/chat/completions", body).json()["usage"]
    assert usage["total_tokens"] == SIZES.longest


def test_the_prompt_may_be_text_or_token_ids_alone_or_in_a_list(server: Served) -> None:
    same = [server.complete(prompt=given)["choices"] for given in ("Hello", ["Hello"], HELLO, [HELLO])]
    assert same == [same[0]] * 4


def test_a_seed_repeats_its_answer_and_no_seed_does_not(server: Served) -> None:
    def said(**more: Any) -> str:
        text: str = server.complete(temperature=1.0, max_tokens=30, **more)["choices"][0]["text"]
        return text

    assert said(seed=7) == said(seed=7) != said(seed=8)
    assert said(seed=-1) == said(seed=-1)
    assert said() != said()


# --- where an answer ends -------------------------------------------------------------------


def prompt_that_ends(least: int = 3, most: int = 200) -> tuple[str, list[int]]:
    """A prompt after which the mock soon ends by itself, and its tokens."""
    for number in range(4000):
        prompt = f"p{number}"
        tokens = alone(list(prompt.encode()), most)
        if tokens[-1] == EOS and len(tokens) >= least:
            return prompt, tokens
    raise AssertionError("the mock never ends")


def test_the_end_of_text_ends_an_answer_and_is_not_shown(server: Served) -> None:
    prompt, tokens = prompt_that_ends()
    found = server.complete(prompt=prompt, max_tokens=200)
    assert found["choices"][0]["finish_reason"] == "stop"
    assert found["choices"][0]["text"] == text_of(list(prompt.encode()), tokens)
    assert found["usage"]["completion_tokens"] == len(tokens)
    body = {"prompt": prompt, "max_tokens": 200, "temperature": 0, "stream": True}
    last = events(server.post("/v1/completions", body))[-1]["choices"][0]
    assert last["finish_reason"] == "stop" and last["text"] == ""


def test_an_end_of_text_is_passed_over_where_it_is_to_be_ignored_or_comes_too_early(server: Served) -> None:
    prompt, tokens = prompt_that_ends()
    more = len(tokens) + 5
    ignored = server.complete(prompt=prompt, max_tokens=more, ignore_eos=True)
    assert ignored["usage"]["completion_tokens"] == more
    early = server.complete(prompt=prompt, max_tokens=more, min_tokens=len(tokens))
    assert early["usage"]["completion_tokens"] > len(tokens)


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_a_stop_string_ends_an_answer_even_across_tokens_and_is_not_shown(
    server: Served, path: str, is_streamed: bool
) -> None:
    asked = {"prompt": "Hello"} if path == "/v1/completions" else dict(CHAT)
    body = {**asked, "temperature": 0, "max_tokens": 40}

    def said(more: dict[str, Any]) -> tuple[str, str]:
        reply = server.post(path, {**body, **more, "stream": is_streamed})
        choices = [e["choices"][0] for e in (events(reply) if is_streamed else [reply.json()])]
        parts = [
            c.get("text") or (c.get("delta") or c.get("message") or {}).get("content", "") for c in choices
        ]
        return "".join(parts), choices[-1]["finish_reason"]

    whole, _ = said({})
    for start in (3, 10, 21):  # any cut of the text: most go across tokens
        stop = whole[start : start + 4]
        text, reason = said({"stop": ["never there", stop]})
        assert (text, reason) == (whole[: whole.index(stop)], "stop")
        assert said({"stop": stop})[0] == text


def test_a_stop_token_ends_an_answer_and_is_not_shown(server: Served) -> None:
    tokens = alone(HELLO, 12)
    found = server.complete(max_tokens=12, stop_token_ids=[tokens[4]])
    end = tokens.index(tokens[4])
    assert found["choices"][0]["text"] == text_of(HELLO, tokens[:end])
    assert found["usage"]["completion_tokens"] == end + 1


# --- what is refused ------------------------------------------------------------------------

UNSUPPORTED: dict[str, Any] = {
    "n": 2, "best_of": 3, "echo": True, "suffix": "x", "logprobs": 5, "top_logprobs": 2,
    "logit_bias": {"5": 1}, "frequency_penalty": 0.5, "presence_penalty": -1, "min_p": 0.1,
    "repetition_penalty": 1.2, "response_format": {"type": "json_object"},
    "tools": [{"type": "function"}], "tool_choice": "required", "functions": [{}],
    "function_call": {"name": "f"}, "modalities": ["audio"], "audio": {"voice": "x"},
    "guided_json": {}, "bad_words": ["x"], "include_stop_str_in_output": True,
    "use_beam_search": True, "reasoning_effort": "high", "truncate_prompt_tokens": 4,
    "structured_outputs": {"json": {}}, "chat_template": "x", "prompt_logprobs": 1,
}  # fmt: skip


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_is_not_supported_is_refused_by_name(server: Served, path: str, name: str) -> None:
    body = {"prompt": "Hello"} if path == "/v1/completions" else dict(CHAT)
    status, error = server.refused(path, {**body, name: UNSUPPORTED[name]})
    assert status == 400 and error["param"] == name and error["message"].startswith(name)


def test_no_logprobs_is_not_the_same_as_logprobs_of_no_others(server: Served) -> None:
    assert server.refused("/v1/completions", {"prompt": "a", "logprobs": 0})[0] == 400
    assert server.complete(logprobs=False, max_tokens=1)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_what_asks_for_nothing_special_is_taken(server: Served, path: str) -> None:
    body = {"prompt": "Hello"} if path == "/v1/completions" else dict(CHAT)
    neutral = {
        "n": 1, "logprobs": None, "frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": {},
        "response_format": {"type": "text"}, "tools": [], "tool_choice": "none", "user": "me", "stop": None,
        "metadata": {"a": "b"}, "store": True, "seed": None, "stream_options": None, "service_tier": "auto",
    }  # fmt: skip
    reply = server.post(path, {**body, **neutral, "max_tokens": 2})
    assert reply.status_code == 200, reply.text


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": "a", "stpo": "x"}, "stpo"),
        ({"prompt": "a", "temperature": 3}, "temperature"),
        ({"prompt": "a", "temperature": -0.1}, "temperature"),
        ({"prompt": "a", "temperature": "hot"}, "temperature"),
        ({"prompt": "a", "top_p": 0}, "top_p"),
        ({"prompt": "a", "top_k": -2}, "top_k"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "a", "max_tokens": 2.5}, "max_tokens"),
        ({"prompt": "a", "min_tokens": -1}, "min_tokens"),
        ({"prompt": "a", "min_tokens": 20, "max_tokens": 10}, "min_tokens"),
        ({"prompt": "a", "seed": 1 << 70}, "seed"),
        ({"prompt": "a", "stop": 5}, "stop"),
        ({"prompt": "a", "stop": "x" * 501}, "stop"),
        ({"prompt": "a", "stop": ["x"] * 33}, "stop"),
        ({"prompt": "a", "stop_token_ids": [10**9]}, "stop_token_ids"),
        ({"prompt": "a", "stream_options": {"include_usage": True}}, "stream_options"),
        ({"prompt": "a", "stream": True, "stream_options": {"usage": True}}, "stream_options"),
        ({}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [1, "b"]}, "prompt"),
        ({"prompt": [4999]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": {"a": "b"}}, "prompt"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(server: Served, body: dict[str, Any], param: str) -> None:
    status, error = server.refused("/v1/completions", body)
    assert status == 400 and error["param"] == param and error["type"] == "invalid_request_error"


@pytest.mark.parametrize("messages", [[], [{"content": "x"}], [{"role": "user", "content": 5}], "hi", [5]])
def test_messages_that_cannot_be_are_refused(server: Served, messages: Any) -> None:
    status, error = server.refused("/v1/chat/completions", {"messages": messages})
    assert status == 400 and "messages" in error["param"]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"5", b'"x"', b"\xff", b"[" * 100_000, b'{"prompt": "\\ud800"}', b'{"prompt": 1e999}'],
)
def test_a_body_that_is_no_request_is_refused(server: Served, body: bytes) -> None:
    reply = server.client.post("/v1/completions", content=body, headers={"content-type": "application/json"})
    assert reply.status_code == 400 and "Traceback" not in reply.text


def test_a_body_of_another_type_is_refused(server: Served) -> None:
    reply = server.client.post("/v1/completions", content=b"prompt=a")
    assert reply.status_code == 415


def test_a_prompt_over_max_model_len_is_refused_with_both_numbers(server: Served) -> None:
    status, error = server.refused("/v1/completions", {"prompt": "a" * 700})
    assert status == 400 and "700" in error["message"] and "512" in error["message"]
    assert error["code"] == "context_length_exceeded"
    status, error = server.refused("/v1/completions", {"prompt": "a" * 500, "max_tokens": 13})
    assert status == 400 and all(number in error["message"] for number in ("500", "13", "512", "12"))
    assert server.complete(prompt="a" * 500, max_tokens=12)["usage"]["total_tokens"] <= 512
    assert server.complete(prompt="a" * 511)["usage"]["completion_tokens"] == 1, "the default gives way"


def test_another_model_and_another_page_are_not_found(server: Served) -> None:
    status, error = server.refused("/v1/completions", {"prompt": "a", "model": "gpt"})
    assert status == 404 and "mock" in error["message"] and error["code"] == "model_not_found"
    assert server.client.get("/v1/models/gpt").status_code == 404
    assert server.client.get("/nothing").status_code == 404
    assert server.client.get("/v1/completions").status_code == 405
    assert server.client.get("/v1/models/mock").json()["max_model_len"] == SIZES.longest
    assert [model["id"] for model in server.client.get("/v1/models").json()["data"]] == ["mock"]


# --- keys, sizes, loading -------------------------------------------------------------------


def test_with_a_key_only_those_who_show_it_get_in() -> None:
    with served(api_key="secret") as server:
        body = {"prompt": "a", "max_tokens": 1}
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "secret"}):
            reply = server.post("/v1/completions", body, headers=headers)
            assert reply.status_code == 401 and reply.json()["error"]["code"] == "invalid_api_key"
        assert server.client.get("/v1/models").status_code == 401
        shown = {"authorization": "Bearer secret"}
        assert server.post("/v1/completions", body, headers=shown).status_code == 200
        assert server.client.get("/health").status_code == server.client.get("/metrics").status_code == 200


def test_a_body_that_is_too_large_is_refused_and_the_server_goes_on() -> None:
    with served(max_body=1000) as server:
        assert server.post("/v1/completions", {"prompt": "a" * 5000}).status_code == 413
        assert server.complete(prompt="a", max_tokens=1)


def test_until_the_model_is_loaded_clients_are_told_to_wait() -> None:
    gate = threading.Event()
    with served(gate=gate) as server:
        wait_until(lambda: server.client.get("/health").status_code == 503)
        reply = server.post("/v1/completions", {"prompt": "a"})
        assert reply.status_code == 503 and int(reply.headers["retry-after"]) > 0
        assert server.client.get("/v1/models").status_code == 503
        assert server.client.get("/metrics").status_code == 200
        gate.set()
        wait_until(lambda: server.client.get("/health").status_code == 200)
        assert server.complete(max_tokens=1)
        assert server.said == ["ready"]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_request_that_the_order_has_no_place_for_is_refused_alone(is_streamed: bool) -> None:
    with served("ordered(order=edf)", engine=mock(SIZES, SLOW)) as server:
        with ThreadPoolExecutor() as pool:
            other = pool.submit(server.post, "/v1/completions", {"prompt": "a", "max_tokens": 30})
            server.until(lambda: server.metric("vllm:num_requests_running") == 1)
            asked = {"prompt": "a", "priority": 7, "stream": is_streamed}
            refused = server.post("/v1/completions", asked)
            assert refused.status_code == 400 and "priority 7" in refused.json()["error"]["message"]
            assert other.result().status_code == 200
        assert server.post("/v1/completions", {"prompt": "a", "priority": 1}).status_code == 200


# --- the queue, deadlines, hanging up ---------------------------------------------------------

ONE = Limits(max_num_seqs=1, max_num_batched_tokens=256, max_model_len=512, num_kv_blocks=512)
LONG = {"prompt": "Hello", "max_tokens": 400, "ignore_eos": True}


def test_who_comes_when_the_queue_is_full_is_told_when_to_try_again() -> None:
    with served(engine=mock(ONE, SLOW), limits=ONE, patience=Patience(max_queue=3)) as server:

        def waits(count: int) -> Any:
            return asyncio.to_thread(
                server.until, lambda: server.metric("vllm:num_requests_waiting") == count
            )

        async def fill() -> Any:
            asked = [asyncio.ensure_future(listen(server.port, LONG))]
            await asyncio.to_thread(server.until, lambda: server.metric("vllm:num_requests_running") == 1)
            asked += [asyncio.ensure_future(listen(server.port, LONG)) for _ in range(3)]
            await waits(3)
            refused = await asyncio.to_thread(server.post, "/v1/completions", {"prompt": "a"})
            asked.pop().cancel()
            await waits(2)
            asked.append(asyncio.ensure_future(listen(server.port, LONG)))
            await waits(3)
            for one in asked:
                one.cancel()
            return refused

        refused = asyncio.run(fill())
        assert refused.status_code == 503 and int(refused.headers["retry-after"]) > 0
        assert "3" in refused.json()["error"]["message"]
        server.until(lambda: server.metric("vllm:request_success_total", finished_reason="abort") == 5)


@pytest.mark.parametrize("after", [0, 1, 5])
def test_hanging_up_frees_the_blocks(after: int) -> None:
    with served(engine=mock(SIZES, SLOW)) as server:
        asyncio.run(listen(server.port, LONG, hang_up_after=after))
        server.until(lambda: server.metric("vllm:request_success_total", finished_reason="abort") == 1)
        assert server.live.blocks.free == server.live.blocks.size
        assert server.metric("vllm:generation_tokens_total") < 100


def test_hanging_up_on_an_answer_that_is_not_streamed_frees_the_blocks() -> None:
    with served(engine=mock(SIZES, SLOW)) as server:

        async def hang_up() -> None:
            asked = asyncio.ensure_future(listen(server.port, {**LONG, "stream": False}))
            await asyncio.sleep(0.2)
            asked.cancel()

        asyncio.run(hang_up())
        server.until(lambda: server.metric("vllm:request_success_total", finished_reason="abort") == 1)


def test_a_request_that_takes_too_long_is_ended_with_504_or_an_event() -> None:
    with served(engine=mock(SIZES, SLOW), patience=Patience(request_timeout=0.3)) as server:
        reply = server.post("/v1/completions", {**LONG, "temperature": 0})
        assert reply.status_code == 504 and "--request-timeout" in reply.json()["error"]["message"]
        heard = asyncio.run(listen(server.port, LONG))
        assert heard.status == 200 and heard.texts and heard.is_done
        assert heard.error is not None and "--request-timeout" in heard.error["message"]
        assert server.complete(max_tokens=2), "a short one is served"


# --- failures -------------------------------------------------------------------------------


class Failing(Mock):
    """An engine that raises in the steps in which `fails`."""

    fails = False

    def run(self, work: Work) -> list[int]:
        if self.fails:
            self.fails = False
            raise RuntimeError("secret detail of the engine")
        return super().run(work)


def failing(cost: Any = FAST) -> Failing:
    return Failing(cost, num_kv_blocks=512, max_model_len=512, vocab_size=Nonsense.vocab_size, is_real=True)


def test_a_step_that_raises_fails_its_requests_with_500_and_the_server_lives() -> None:
    engine = failing()
    with served(engine=engine) as server:
        engine.fails = True
        reply = server.post("/v1/completions", {"prompt": "Hello"})
        assert reply.status_code == 500 and "secret" not in reply.text and "Traceback" not in reply.text
        assert server.complete(max_tokens=6)["choices"][0]["text"] == text_of(HELLO, alone(HELLO, 6))
        assert server.metric("vllm:request_success_total", finished_reason="error") == 1


def test_a_step_that_raises_ends_a_stream_that_has_begun_with_an_error_event() -> None:
    engine = failing(SLOW)
    with served(engine=engine) as server:

        async def stream() -> Any:
            asked = asyncio.ensure_future(listen(server.port, LONG))
            await asyncio.sleep(0.4)
            engine.fails = True
            return await asked

        heard = asyncio.run(stream())
        assert heard.status == 200 and heard.texts and heard.is_done and heard.reason is None
        assert heard.error is not None and heard.error["type"] == "server_error"
        assert "secret" not in heard.error["message"]


class Moody:
    """The policy of vLLM, but it raises when it is told to."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.raises = False

    def begin(self, batch: Batch) -> Any:
        from batchwright.policies import Vllm

        asked = Vllm().begin(batch)

        def policy(b: Batch) -> None:
            if self.raises:
                self.raises = False
                raise self.error
            asked(b)

        return policy


@pytest.mark.parametrize("error", [ValueError("secret"), SystemExit(3)])
def test_a_policy_that_raises_fails_all_requests_with_500_and_the_server_lives(error: BaseException) -> None:
    policy = Moody(error)
    with served(policy) as server:
        policy.raises = True
        reply = server.post("/v1/completions", {"prompt": "Hello"})
        assert reply.status_code == 500 and "secret" not in reply.text
        assert server.complete(max_tokens=6)["choices"][0]["text"] == text_of(HELLO, alone(HELLO, 6))


class Refusing:
    """A policy that raises when it is asked, and then cannot begin again."""

    begins = 0

    def begin(self, batch: Batch) -> Any:
        self.begins += 1
        if self.begins > 1:
            raise RuntimeError("no second time")

        def policy(b: Batch) -> None:
            raise RuntimeError("secret")

        return policy


def test_a_policy_that_cannot_begin_again_ends_the_server_and_answers_all() -> None:
    with pytest.raises(AssertionError, match="no second time"), served(Refusing()) as server:
        reply = server.post("/v1/completions", {"prompt": "Hello"})
        assert reply.status_code == 500 and "secret" not in reply.text


def test_an_empty_batch_that_lost_a_block_begins_anew(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "QUIET", 0.05)
    with served() as server:
        server.complete(max_tokens=2)
        server.until(lambda: server.live.batch.num_running == 0)
        lost = server.live.blocks
        lost.take(1)
        server.complete(max_tokens=2)
        server.until(lambda: server.live.blocks is not lost)
        assert "begins anew" in caplog.text
        assert server.complete(max_tokens=6)["choices"][0]["text"] == text_of(HELLO, alone(HELLO, 6))


def test_a_log_that_is_forgotten_while_requests_run_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "KEPT", 7)
    with served() as server:
        found = server.complete(max_tokens=60)["choices"][0]
        assert found["text"] == text_of(HELLO, alone(HELLO, 60))
        assert server.live.batch.tick_count >= 30 and len(server.live.log.steps) <= 8


# --- policies -------------------------------------------------------------------------------


def test_a_policy_that_does_not_stream_sends_all_when_the_batch_has_ended() -> None:
    with served("static(batch_size=2)", engine=mock(SIZES, Linear(base=0.01))) as server:

        async def both() -> list[Any]:
            return list(
                await asyncio.gather(
                    listen(server.port, {"prompt": "Hello", "max_tokens": 3, "ignore_eos": True}),
                    listen(server.port, {"prompt": "Hallo", "max_tokens": 30, "ignore_eos": True}),
                )
            )

        begin = time.monotonic()
        short, long = asyncio.run(both())
        assert len(short.texts) == 3 and len(long.texts) == 30
        assert time.monotonic() - begin > 0.3
        e2e = server.metric("vllm:e2e_request_latency_seconds_sum")
        assert server.metric("vllm:time_to_first_token_seconds_sum") == pytest.approx(e2e)
        assert server.metric("vllm:inter_token_latency_seconds_count") == 0


@pytest.mark.parametrize("policy", ["vllm", "orca", "dynamic(max_batch_size=4, window=0.01)", "static(4)"])
def test_every_policy_gives_each_request_what_it_gets_alone(policy: str) -> None:
    prompts = [f"{'shared prefix of some blocks, ' * (n % 3)}{n}" for n in range(8)]
    with served(policy) as server:

        async def all_of_them() -> list[Any]:
            return list(
                await asyncio.gather(*(listen(server.port, {"prompt": p, "max_tokens": 20}) for p in prompts))
            )

        for prompt, heard in zip(prompts, asyncio.run(all_of_them()), strict=True):
            ids = NONSENSE.encode(prompt)
            assert "".join(heard.texts) == text_of(ids, alone(ids, 20))


def test_prompts_that_start_alike_share_their_blocks(server: Served) -> None:
    before = server.metric("vllm:prefix_cache_hits_total")
    prompt = "a prompt that fills some blocks of the KV cache, to be sent twice in a row"
    first, second = (server.complete(prompt=prompt, max_tokens=4) for _ in range(2))
    assert first["choices"] == second["choices"]
    assert first["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached == (len(prompt) - 1) // 16 * 16
    assert server.metric("vllm:prefix_cache_hits_total") - before == cached


# --- metrics --------------------------------------------------------------------------------


def test_the_counts_agree_with_what_clients_got() -> None:
    with served(
        limits=Limits(max_num_seqs=32, max_num_batched_tokens=256, max_model_len=512, num_kv_blocks=32)
    ) as server:

        async def all_of_them() -> list[Any]:
            bodies = [{"prompt": f"{n} {'x' * 60}", "max_tokens": 50, "ignore_eos": True} for n in range(12)]
            return list(await asyncio.gather(*(listen(server.port, body) for body in bodies)))

        heard = asyncio.run(all_of_them())
        tokens = sum(len(one.texts) for one in heard)
        assert tokens == 600
        assert server.metric("vllm:generation_tokens_total") == tokens
        prompts = sum(len(f"{n} {'x' * 60}") for n in range(12))
        assert server.metric("vllm:prompt_tokens_total") == prompts
        assert server.metric("vllm:request_success_total", finished_reason="length") == 12
        assert server.metric("vllm:time_to_first_token_seconds_count") == 12
        assert server.metric("vllm:inter_token_latency_seconds_count") == tokens - 12
        assert server.metric("vllm:request_time_per_output_token_seconds_count") == 12
        assert server.metric("vllm:e2e_request_latency_seconds_count") == 12
        assert server.metric("vllm:request_queue_time_seconds_count") == 12
        assert server.metric("vllm:num_preemptions_total") > 0, "32 blocks are too few for all"
        ends = server.metric("vllm:e2e_request_latency_seconds_sum")
        starts = server.metric("vllm:time_to_first_token_seconds_sum")
        gaps = server.metric("vllm:inter_token_latency_seconds_sum")
        assert starts + gaps == pytest.approx(ends)
        assert server.metric("vllm:num_requests_running") == server.metric("vllm:num_requests_waiting") == 0


def test_the_metrics_have_the_names_of_vllm_and_the_label_model_name(server: Served) -> None:
    server.complete(max_tokens=2)
    text = server.client.get("/metrics").text
    samples = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert all(line.startswith("vllm:") and 'model_name="mock"' in line for line in samples)
    for name in (
        "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "num_preemptions_total",
        "prompt_tokens_total", "generation_tokens_total", "prefix_cache_queries_total",
        "prefix_cache_hits_total", "request_success_total", "cache_config_info",
        *(f"{histogram}_bucket" for histogram in (
            "time_to_first_token_seconds", "inter_token_latency_seconds",
            "request_time_per_output_token_seconds", "e2e_request_latency_seconds",
            "request_queue_time_seconds", "iteration_tokens_total",
        )),
    ):  # fmt: skip
        assert f"\nvllm:{name}{{" in text, name
    for before, after in pairwise(line for line in samples if "first_token_seconds_bucket" in line):
        assert float(before.split()[-1]) <= float(after.split()[-1])


def test_the_gauges_show_what_runs_and_what_waits() -> None:
    with served(engine=mock(ONE, SLOW), limits=ONE) as server:

        async def two() -> None:
            asked = [asyncio.ensure_future(listen(server.port, LONG)) for _ in range(2)]
            gauges = ("vllm:num_requests_running", "vllm:num_requests_waiting")
            await asyncio.to_thread(server.until, lambda: [server.metric(name) for name in gauges] == [1, 1])
            assert 0 < server.metric("vllm:kv_cache_usage_perc") < 1
            for one in asked:
                one.cancel()

        asyncio.run(two())
        server.until(lambda: server.metric("vllm:request_success_total", finished_reason="abort") == 2)


# --- logs -----------------------------------------------------------------------------------


def test_a_prompt_is_not_logged_unless_that_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    for logs in (False, True):
        engine = failing()
        with served(engine=engine, logs_requests=logs) as server:
            server.complete(prompt="a secret prompt", max_tokens=2)
            engine.fails = True
            server.post("/v1/completions", {"prompt": "a secret prompt"})
            server.post("/v1/completions", {"prompt": "a secret prompt", "temperature": 9})
        ours = [r.getMessage() for r in caplog.records if not r.name.startswith("http")]
        assert any("secret" in message for message in ours) is logs
