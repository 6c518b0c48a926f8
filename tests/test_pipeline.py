"""A pipeline against a literal one: stages that serve micro-batches one at a time, round after round."""

from __future__ import annotations

import dataclasses

import pytest

from batchwright.cost import Roofline
from batchwright.hardware import MODELS, Model
from batchwright.step import Step

LLAMA = MODELS["llama-3.1-8b"]
HEADLESS = dataclasses.replace(LLAMA, vocab=1)  # all stages alike
FIXED = 0.0032


def work(rows: int, context: int, prompt: int = 0, sampled: int | None = None) -> Step:
    """Decodes of such a context each, and one chunk."""
    step = Step()
    step.quiet(rows, 0, rows * context)
    step.prefill_tokens, step.num_chunks = prompt, 1 if prompt else 0
    step.prefill_attention = prompt * prompt / 2
    step.sampled_rows = rows if sampled is None else sampled
    return step


def stage_seconds(model: Model, layers: list[int], rows: int, context: int) -> list[float]:
    """What each stage takes for one micro-batch: a small model of its layers; only the last samples."""
    found = []
    for stage, own in enumerate(layers):
        part = dataclasses.replace(model, layers=own)
        fixed = FIXED * own / model.layers
        sampled = rows if stage == len(layers) - 1 else 0
        found.append(Roofline("H100-SXM", part, fixed_seconds=fixed).seconds(work(rows, context, 0, sampled)))
    return found


def round_seconds(stages: list[float], count: int, send: float, rounds: int = 200) -> float:
    """The period in which `count` micro-batches go round, each entering again when it has left."""
    free = [0.0] * len(stages)
    ready = [0.0] * count
    ends = []
    for _ in range(rounds):
        for micro in range(count):
            at = ready[micro]
            for stage, seconds in enumerate(stages):
                begin = max(at, free[stage])
                free[stage] = begin + seconds
                at = free[stage] + (send if stage < len(stages) - 1 else 0.0)
            ready[micro] = at
        ends.append(max(ready))
    half = rounds // 2
    return (ends[-1] - ends[-1 - half]) / half


def send_seconds(tokens: int) -> float:
    """One hop through the switch, and hidden state and residual in 16 bits over the link."""
    return 0.6e-6 + 2 * 2 * LLAMA.hidden * tokens / 450e9


@pytest.mark.parametrize("model", [LLAMA, HEADLESS], ids=["head", "no head"])
@pytest.mark.parametrize("layers", [[16, 16], [11, 11, 10], [8, 8, 8, 8], [7, 7, 6, 6, 6]])
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8, 60, 257, 2000])
def test_a_round_lasts_as_long_as_in_a_literal_pipeline(model: Model, layers: list[int], rows: int) -> None:
    count = min(len(layers), rows)
    own = -(-rows // count)
    stages = stage_seconds(model, layers, own, context=800)
    expected = round_seconds(stages, count, send_seconds(own))
    cost = Roofline("H100-SXM", model, pp=len(layers), fixed_seconds=FIXED)
    assert cost.seconds(work(own * count, 800)) == pytest.approx(expected, rel=2e-6)
    assert cost.seconds(work(rows, 800)) <= expected * (1 + 2e-6)  # fewer rows in some micro-batches


def test_throughput_grows_by_the_stages_only_with_as_many_micro_batches() -> None:
    one = Roofline("H100-SXM", HEADLESS)
    four = Roofline("H100-SXM", HEADLESS, pp=4)
    hops = 3 * send_seconds(1)
    for rows in (1, 2, 3, 4):  # each row is a micro-batch: TPOT is that of one row, and the hops
        assert four.seconds(work(rows, 800)) == pytest.approx(one.seconds(work(1, 800)) + hops)
    gain = {rows: rows / four.seconds(work(rows, 800)) * one.seconds(work(1, 800)) for rows in (1, 2, 4)}
    assert gain[1] == pytest.approx(1, rel=1e-3) and gain[2] == pytest.approx(2, rel=1e-3)
    assert gain[4] == pytest.approx(4, rel=1e-3)


def test_the_stage_with_the_output_head_bounds_a_full_pipeline() -> None:
    head = 2 * LLAMA.vocab * LLAMA.hidden / (3.35e12 * 0.75)
    with_head = Roofline("H100-SXM", LLAMA, pp=4).seconds(work(4, 0))
    without = Roofline("H100-SXM", HEADLESS, pp=4).seconds(work(4, 0))
    assert with_head - without == pytest.approx(4 * head, rel=0.01)  # four micro-batches read it in turn


def test_a_prompt_is_cut_over_the_stages_and_reads_what_is_before_it() -> None:
    whole, pieces = Roofline("H100-SXM", HEADLESS, mfu=1e-3), []
    for piece in range(4):  # a chunk of 1000 tokens after 3000, in four pieces: the mean of their times
        step = work(0, 0, 250)
        step.past_tokens = 3000 + 250 * piece
        step.prefill_attention = 250 * (step.past_tokens + 125)
        pieces.append(whole.seconds(step))
    chunk = work(0, 0, 1000)
    chunk.past_tokens, chunk.prefill_attention = 3000, 1000 * 3500
    cut = Roofline("H100-SXM", HEADLESS, mfu=1e-3, pp=4).seconds(chunk)
    assert cut == pytest.approx(sum(pieces) / 4 + 3 * send_seconds(250), rel=1e-9)


def test_many_chunks_are_spread_over_the_micro_batches() -> None:
    step = work(0, 0, 4096)
    step.num_chunks, step.past_tokens = 8, 8 * 500
    step.prefill_attention = 8 * 512 * (500 + 256)
    two = work(0, 0, 1024)
    two.num_chunks, two.past_tokens = 2, 2 * 500
    two.prefill_attention = 2 * 512 * (500 + 256)
    expected = Roofline("H100-SXM", HEADLESS).seconds(two) + 3 * send_seconds(1024)
    assert Roofline("H100-SXM", HEADLESS, pp=4).seconds(step) == pytest.approx(expected, rel=1e-9)


def test_one_token_has_no_micro_batch_but_itself() -> None:
    chunk = work(0, 0, 1)
    deep = Roofline("H100-SXM", HEADLESS, pp=8).seconds(chunk)
    assert deep == pytest.approx(Roofline("H100-SXM", HEADLESS).seconds(chunk) + 7 * send_seconds(1))
