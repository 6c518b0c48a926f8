"""Hundreds of streams at once, half of which hang up: nothing leaks, is lost or mixed up."""

# ruff: noqa: E402  what the server needs may not be installed: then there is nothing to import
from __future__ import annotations

import asyncio
from functools import cache
from random import Random
from typing import Any

import pytest

for module in ("starlette", "uvicorn", "prometheus_client", "httpx"):
    pytest.importorskip(module, reason=f"{module} is not installed: pip install 'batchwright[serve]' httpx")

from batchwright import Limits, Linear
from serving import NONSENSE, Heard, Served, alone, listen, mock, served, text_of

pytestmark = pytest.mark.pure

# Few blocks, so that requests are preempted and cached blocks evicted all the time.
TIGHT = Limits(max_num_seqs=48, max_num_batched_tokens=192, max_model_len=256, num_kv_blocks=160)
MOST = 40  # tokens
PROMPTS = [f"{'a story that many ask for: ' * (n % 4)}number {n}, {'x' * (n % 37)}" for n in range(60)]


@cache
def tokens_of(number: int) -> list[int]:
    """What prompt `number` gets that runs alone."""
    return alone(NONSENSE.encode(PROMPTS[number]), MOST, TIGHT)


def check(heard: Heard, number: int, most: int, stop: str | None) -> None:
    """Is `heard`, which may have been cut short, what the request gets that runs alone?"""
    ids, tokens = NONSENSE.encode(PROMPTS[number]), tokens_of(number)[:most]
    whole = text_of(ids, tokens, (stop,) if stop else ())
    said = "".join(heard.texts)
    assert heard.error is None
    assert said == whole if heard.is_done else whole.startswith(said), (number, said, whole)


async def one(server: Served, random: Random, statuses: list[int]) -> None:
    number, most = random.randrange(len(PROMPTS)), random.randint(1, MOST)
    stop = random.choice([None, None, "an", "x k"])
    body = {"prompt": PROMPTS[number], "max_tokens": most, **({"stop": stop} if stop else {})}
    hang_up_after = random.randint(0, most) if random.random() < 0.5 else None
    await asyncio.sleep(random.random() * 0.5)
    heard = await listen(server.port, body, hang_up_after=hang_up_after)
    statuses.append(heard.status)
    if heard.status in (0, 503):
        return
    assert heard.status == 200
    check(heard, number, most, stop)
    assert hang_up_after is not None or heard.is_done, "a request was lost"


def soak(policy: str, streams: int, rounds: int, seed: int) -> None:
    cost = Linear(base=3e-3, prefill=2e-6, decode=5e-6)
    with served(policy, engine=mock(TIGHT, cost), limits=TIGHT) as server:

        async def round_of(number: int) -> list[int]:
            statuses: list[int] = []
            randoms = [Random(f"{seed} {number} {n}") for n in range(streams)]
            await asyncio.gather(*(one(server, random, statuses) for random in randoms))
            return statuses

        ended = 0
        for number in range(rounds):
            statuses = asyncio.run(round_of(number))
            assert len(statuses) == streams and 503 not in statuses
            server.until(lambda: all_ended(server))
            server.live.batch.check()
            assert server.live.blocks.free == server.live.blocks.size, "KV blocks leak"
            now_ended = ends(server)
            assert streams - statuses.count(0) <= now_ended - ended <= streams, "a request was lost"
            ended = now_ended
        assert server.metric("vllm:request_success_total", finished_reason="error") == 0
        assert server.metric("vllm:request_success_total", finished_reason="abort") > 0


def ends(server: Served) -> int:
    reasons = ("stop", "length", "abort", "error")
    return int(sum(server.metric("vllm:request_success_total", finished_reason=r) for r in reasons))


def all_ended(server: Served) -> bool:
    batch = server.live.batch
    return batch.num_running == batch.num_waiting == 0 and not server.serving._desk._answers  # type: ignore[union-attr]


@pytest.mark.parametrize("policy", ["vllm", "dynamic(max_batch_size=32, window=0.005)"])
def test_hundreds_of_streams_half_of_which_hang_up_leave_nothing_behind(policy: str) -> None:
    soak(policy, streams=250, rounds=2, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("policy", ["vllm", "orca", "dynamic(max_batch_size=32, window=0.005)", "vllm@0.19"])
def test_the_same_for_minutes(policy: str) -> None:
    for seed in range(5):
        soak(policy, streams=400, rounds=10, seed=seed)


def test_two_hundred_streams_at_once_get_all_their_tokens() -> None:
    limits = Limits(max_num_seqs=200, max_num_batched_tokens=512, max_model_len=256, num_kv_blocks=2000)
    with served(engine=mock(limits, Linear(base=1e-3)), limits=limits) as server:

        async def all_of_them() -> list[Any]:
            bodies = [{"prompt": f"stream {n}", "max_tokens": 50} for n in range(200)]
            return list(await asyncio.gather(*(listen(server.port, body) for body in bodies)))

        for n, heard in enumerate(asyncio.run(all_of_them())):
            ids = NONSENSE.encode(f"stream {n}")
            tokens = alone(ids, 50, limits)
            assert heard.status == 200 and heard.is_done and len(heard.texts) == len(tokens)
            assert "".join(heard.texts) == text_of(ids, tokens)
