"""Random workloads that cross the flags of vLLM's scheduler, in the form of a recording.

A workload is a function of its seed.  Pools and budgets are small, so that most workloads
preempt, evict, hold decodes and run dry.
"""

from __future__ import annotations

from random import Random
from typing import Any


def workload(seed: int, asynchronous: bool | None = None) -> dict[str, Any]:
    """Arrivals at whole steps.  `asynchronous`: None leaves it to chance."""
    random = Random(seed)
    config = _config(random)
    late = random.random() < 0.5
    config["async_scheduling"] = late if asynchronous is None else asynchronous
    arrivals = _arrivals(random, random.choice([1, 8, 20, 40]))
    requests = [_request(random, i, config["max_model_len"]) for i in range(len(arrivals))]
    _prefixes(random, requests)
    for request, arrival in zip(requests, arrivals, strict=True):
        request["arrival_step"] = arrival
    return {"name": f"seed {seed}", "seed": seed, "config": config, "requests": requests}


def _config(random: Random) -> dict[str, Any]:
    block_size = random.choice([1, 2, 4, 8, 16, 32])
    longest = random.choice([33, 96, 160, 301, 600])
    chunking = random.random() < 0.8
    budget = random.choice([16, 17, 48, 96, 256, 640])
    spare = random.choice([0, 1, 2, 5, 20, 60]) * random.choice([1, 16]) // block_size
    config: dict[str, Any] = {
        "max_num_seqs": random.choice([1, 3, 8, 16]),
        "max_num_batched_tokens": budget if chunking else max(budget, longest),
        "block_size": block_size,
        "num_blocks": 1 + -(-longest // block_size) + spare,
        "enable_chunked_prefill": chunking,
        "long_prefill_token_threshold": min(random.choice([0, 0, 1, 7, 32, 100]), longest),
        "long_prefill_token_threshold_adaptive": random.random() < 0.3,
        "enable_prefix_caching": random.random() < 0.6,
        "policy": random.choice(["fcfs", "priority"]),
        "max_model_len": longest,
        "scheduler_reserve_full_isl": random.random() < 0.6,
        "watermark": random.choice([0.0, 0.0, 0.01, 0.1, 0.3]),
    }
    if random.random() < 0.3:
        config["max_num_active_seqs"] = min(config["max_num_seqs"], random.choice([1, 2, 5]))
    return config


def _arrivals(random: Random, count: int) -> list[int]:
    """Bursts, single arrivals and, now and then, a pause in which everything ends."""
    gaps = random.choice([[0], [0, 0, 1, 1, 3, 20], [0, 0, 0, 0, 60], [1], [7, 2000], [40]])
    at = random.choice([0, 3])
    arrivals = []
    for _ in range(count):
        arrivals.append(at)
        at += random.choice(gaps)
    return arrivals


def _request(random: Random, index: int, longest: int) -> dict[str, Any]:
    return {
        "id": f"r{index:03d}",
        "prompt_len": random.randint(1, random.choice([8, 20, longest // 2, longest - 1])),
        "output_len": random.randint(1, random.choice([1, 3, 40, 150])),
        "priority": random.choice([0, 0, 1, 2, index, -index]),
    }


def _prefixes(random: Random, requests: list[dict[str, Any]]) -> None:
    """Let some requests share a prefix; how much of it differs from request to request."""
    share = random.choice([0.0, 0.5, 0.8, 1.0])
    groups = random.choice([1, 2, 5])
    usual = random.choice([16, 64, 112, 300])
    for request in requests:
        if random.random() < share:
            request["prefix_group"] = random.randrange(groups)
            request["prefix_len"] = usual if random.random() < 0.7 else random.randint(1, 300)
