"""Random workloads in the format of tests/golden, and Batchwright's objects for them.

A workload is a function of its seed; Hypothesis draws seeds:

    @for_every_seed(200)
    def test_the_clock_is_the_reference(seed): ...
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from batchwright.conformance import limits_of as limits_of
from batchwright.engines.vllm.workloads import workload
from batchwright.request import NO_KEYS, Request

GROUP = 100_000  # keys of one prefix group: more than it has blocks
CLIENTS = 3  # whose turn it is: request i is of client i % CLIENTS
GRID = 64  # arrivals per second: sums of them and of steps are exact

SEEDS = st.integers(0, 2**32 - 1)


def for_every_seed(examples: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test with `examples` values of `seed`, the same ones every time."""
    rules = settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    return lambda test: rules(given(seed=SEEDS)(test))


def timed_workload(seed: int, asynchronous: bool | None = None, headroom: bool = False) -> dict[str, Any]:
    """Arrivals in seconds (`arrival`), on a grid of 1 / GRID, with ties and bursts.

    `headroom`: clients ask for more tokens (`max_tokens`) than they get.
    """
    random = Random(seed + 1)
    load = workload(seed, asynchronous)
    stretch = random.choice([1, 5, 23, 90])
    last = 0
    for request in load["requests"]:
        at = request.pop("arrival_step") * stretch
        if random.random() < 0.7:  # else a tie stays a tie
            at += random.randrange(stretch)
        last = max(last, at)
        request["arrival"] = last / GRID
    if headroom:
        for request in load["requests"]:
            request["max_tokens"] = request["output_len"] + random.choice([0, 1, 30, 500])
    return load


def requests_of(load: dict[str, Any]) -> list[Request]:
    """The requests of a workload; ids are their places in the list."""
    return [_request_of(i, request, load["config"]) for i, request in enumerate(load["requests"])]


def _request_of(index: int, request: dict[str, Any], config: dict[str, Any]) -> Request:
    prompt = request["prompt_len"]
    room = config["max_model_len"] - prompt
    output = min(request["output_len"], room)
    return Request(
        index,
        float(request.get("arrival", request.get("arrival_step", 0))),
        prompt,
        output,
        max_tokens=min(request.get("max_tokens", output), room),
        priority=request.get("priority", 0),
        prefix=_keys(request, config["block_size"]),
        client=index % CLIENTS,
    )


def _keys(request: dict[str, Any], block_size: int) -> array[int]:
    group = request.get("prefix_group")
    if group is None:
        return NO_KEYS
    blocks = min(request["prefix_len"], request["prompt_len"]) // block_size
    assert blocks < GROUP
    return array("q", range(group * GROUP, group * GROUP + blocks))


def _trap(block_size: int, num_blocks: int, whole: bool, requests: list[dict[str, Any]]) -> dict[str, Any]:
    config = {
        "max_num_seqs": 4,
        "max_num_batched_tokens": 32,
        "block_size": block_size,
        "num_blocks": num_blocks,
        "enable_chunked_prefill": True,
        "long_prefill_token_threshold": 0,
        "enable_prefix_caching": True,
        "policy": "priority",
        "max_model_len": 8,
        "scheduler_reserve_full_isl": whole,
        "async_scheduling": True,
    }
    return {"name": "trap", "config": config, "requests": requests}


# Asynchronous scheduling lets others hit a decode's newest full block one step late, with two
# exceptions that only few random workloads show:

# a request that ends (r000, seen before step 3) has all its blocks named before they are freed,
# so its last block is reused last, not first;
END_TRAP = _trap(1, 9, True, [
    {"id": "r000", "arrival_step": 0, "prompt_len": 3, "output_len": 2, "priority": 2,
     "prefix_group": 0, "prefix_len": 8},
    {"id": "r001", "arrival_step": 1, "prompt_len": 3, "output_len": 2, "priority": 3},
    {"id": "r002", "arrival_step": 1, "prompt_len": 1, "output_len": 3, "priority": 2,
     "prefix_group": 0, "prefix_len": 8},
])  # fmt: skip

# a decode that was held has no token in flight, so nothing is late in the step that it rejoins:
# r002 is held in step 2, runs in step 3, is the victim of step 4 and hits all its 4 tokens in step 6.
HELD_TRAP = _trap(2, 5, False, [
    {"id": "r000", "arrival_step": 0, "prompt_len": 1, "output_len": 4, "priority": 2},
    {"id": "r001", "arrival_step": 1, "prompt_len": 1, "output_len": 3, "priority": 0},
    {"id": "r002", "arrival_step": 1, "prompt_len": 3, "output_len": 5, "priority": 0},
])  # fmt: skip
