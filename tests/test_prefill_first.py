"""What prefill steps of their own do to those who decode, by SGLang's policy.

The step times are stated with each test.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, count, pairwise
from random import Random
from typing import Any

import pytest

from batchwright import Limits, Linear, Request, Simulator
from batchwright.policies import Vllm
from batchwright.policies.sglang import Sglang
from batchwright.step import Step
from test_schedules import load, walk, walked

# --- a long prompt ----------------------------------------------------------------


def longest_gap(chunks: int, **flags: Any) -> float:
    """Seconds between two tokens of a request, at most, into whose decodes a prompt of so many chunks falls.

    Steps take 1/64 s, and 1/16384 s more for each prompt token: a chunk of 8,192 takes 1/2 s more.
    """
    config = Sglang(disable_overlap_schedule=True, **flags)
    make = load((0.0, 16, 40), (0.25, chunks * 8192, 2))
    steps = walk(walked(config, make, Linear(base=2**-6, prefill=2**-14), Limits()))
    ends = list(accumulate(2**-6 + step.prefill_tokens * 2**-14 for step in steps))
    times = [end for end, step in zip(ends, steps, strict=True) if 0 in dict(step.scheduled)]
    return max(after - before for before, after in pairwise(times))


@pytest.mark.parametrize("chunks", [1, 4, 16])
def test_decodes_wait_for_all_chunks_unless_they_are_mixed(chunks: int) -> None:
    unmixed, mixed = longest_gap(chunks), longest_gap(chunks, enable_mixed_chunk=True)
    assert unmixed == chunks * (1 / 2 + 1 / 64) + 1 / 64
    # One decode in the budget leaves 8,191 tokens for a chunk, and 8,176 in whole blocks for the first.
    assert mixed == 1 / 64 + (8191 if chunks > 1 else 8176) / 2**14
    assert unmixed / mixed == pytest.approx(chunks, rel=0.04)


def test_smaller_chunks_shorten_the_stall_of_mixed_steps_only() -> None:
    assert longest_gap(4, chunked_prefill_size=512) > longest_gap(4)  # more steps, so more in all
    fine = longest_gap(4, chunked_prefill_size=512, enable_mixed_chunk=True)
    assert fine == 1 / 64 + 511 / 2**14 < 0.1 * longest_gap(4, enable_mixed_chunk=True)


# --- finishes that come one by one --------------------------------------------------

# SGLang, a 397B model on GB200, 128 clients, prompts and outputs of 1,000 tokens, all alike or drawn from
# 80 % of that up: 7,830 tokens/s, 3,846 where outputs differ, 7,776 where prompts do; with prompts of 10
# tokens 9,018, and 3,788 where outputs differ.  (sgl-project/sglang, pull request 23189.)
# The two step times are taken from the prompts of 10: a decode step takes 128 / 9,018 s, and a pass of
# prompts alone 0.17 s, so that 3,788 tokens/s come out.  Prompt tokens themselves cost nothing more.
DECODE = 128 / 9018
PASS = 0.17
CLIENTS = 128
TURNS = 10


def by_passes(step: Step) -> float:
    return DECODE if step.num_decodes > 0 else PASS


def lengths(random: Random, most: int, ratio: float) -> Iterator[int]:
    while True:
        yield random.randint(int(ratio * most), most)


def throughput(policy: Any, prompt: int = 1000, prompts: float = 1.0, outputs: float = 1.0) -> float:
    """Output tokens per second of clients that send their next request when the last one has ended."""
    random = Random(1)
    ids = count()
    drawn_prompts, drawn_outputs = lengths(random, prompt, prompts), lengths(random, 1000, outputs)
    made: list[Request] = []

    def request(at: float, turns: int) -> Request:
        def then(r: Request, end: float) -> list[Request]:
            return [request(end, turns - 1)] if turns > 1 else []

        made.append(Request(next(ids), at, next(drawn_prompts), next(drawn_outputs), then=then))
        return made[-1]

    simulator = Simulator(policy, by_passes, Limits())
    simulator.run([request(0.0, TURNS) for _ in range(CLIENTS)])
    return sum(r.true_output for r in made) / simulator.now


MEASURED = {  # prompt tokens, ratio of prompts, ratio of outputs -> tokens/s
    (1000, 1.0, 1.0): 7830,
    (1000, 1.0, 0.8): 3846,
    (1000, 0.8, 1.0): 7776,
    (10, 1.0, 1.0): 9018,
    (10, 1.0, 0.8): 3788,
}


@pytest.mark.parametrize("case", MEASURED)
def test_outputs_that_differ_halve_the_throughput_and_prompts_that_differ_do_not(
    case: tuple[int, float, float],
) -> None:
    assert throughput(Sglang(), *case) == pytest.approx(MEASURED[case], rel=0.05)


def test_mixed_steps_lose_nothing_when_outputs_differ() -> None:
    for policy in (Sglang(enable_mixed_chunk=True), Vllm(max_num_batched_tokens=8192)):
        assert throughput(policy, outputs=0.8) == pytest.approx(throughput(policy), rel=0.05)


def test_the_delayer_wins_back_most_of_what_prefill_steps_cost() -> None:
    delayed = Sglang(enable_prefill_delayer=True, prefill_delayer_queue_min_ratio=0.2)
    plain = throughput(Sglang(), outputs=0.8)
    assert throughput(delayed, outputs=0.8) > 1.5 * plain
    assert throughput(delayed) < throughput(Sglang())  # the last few of a burst are held back for 5 seconds
