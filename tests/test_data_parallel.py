"""Ranks in lock step against ranks that are drawn and timed one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from batchwright.cost import Roofline
from batchwright.errors import CostError, LimitError
from batchwright.hardware import MODELS, check_split
from batchwright.step import Step

MODEL = MODELS["qwen3-30b-a3b"]
READ = MODEL.layers * 2 * MODEL.kv_heads * MODEL.head_dim * 2 / (3.35e12 * 0.75)  # seconds per KV token


def decode(rows: int, context: float) -> Step:
    step = Step()
    step.quiet(rows, 0, round(rows * context))
    return step


def longest_rank(random: Any, rows: int, ranks: int, mean: float, cv: float, trials: int = 4000) -> float:
    """Mean KV tokens of the rank that has the most; contexts are Gamma, dealt in turn."""
    shape = 1 / cv**2
    contexts = random.gamma(shape, mean / shape, (trials, rows))
    return float(np.stack([contexts[:, rank::ranks].sum(axis=1) for rank in range(ranks)]).max(axis=0).mean())


@pytest.mark.parametrize(("rows", "ranks"), [(3, 8), (16, 4), (64, 8), (256, 8), (512, 32)])
@pytest.mark.parametrize("cv", [0.4, 1.0])
def test_attention_lasts_as_long_as_on_the_rank_with_most_context(rows: int, ranks: int, cv: float) -> None:
    cost = Roofline("H100-SXM", MODEL, dp=ranks, ep=True, context_cv=cv)
    attention = cost.seconds(decode(rows, 1500)) - cost.seconds(decode(rows, 0))
    expected = longest_rank(np.random.default_rng(5), rows, ranks, 1500, cv) * READ
    assert attention == pytest.approx(expected, rel=0.06)


def test_equal_contexts_make_no_rank_wait() -> None:
    cost = Roofline("H100-SXM", MODEL, dp=8, ep=True, context_cv=0.0)
    attention = cost.seconds(decode(64, 1500)) - cost.seconds(decode(64, 0))
    assert attention == pytest.approx(8 * 1500 * READ)


def test_one_row_keeps_all_ranks_waiting_for_one() -> None:
    cost = Roofline("H100-SXM", MODEL, dp=8, ep=True)
    assert cost.seconds(decode(1, 1500)) - cost.seconds(decode(1, 0)) == pytest.approx(1500 * READ)


def chunks(count: int, past: int) -> Step:
    """So many chunks of 8 tokens, each after so many."""
    step = Step()
    step.prefill_tokens, step.num_chunks, step.past_tokens = 8 * count, count, past * count
    step.prefill_attention = count * 8 * (past + 4)
    return step


@pytest.mark.parametrize(("count", "fullest"), [(1, 1), (5, 1), (8, 1), (9, 2), (16, 2)])
def test_chunks_are_dealt_to_ranks_whole(count: int, fullest: int) -> None:
    cost = Roofline("H100-SXM", MODEL, dp=8, ep=True)
    reading = cost.seconds(chunks(count, 50_000)) - cost.seconds(chunks(count, 0))
    assert reading == pytest.approx(fullest * 50_000 * READ)


def test_ranks_that_share_experts_give_more_than_as_many_servers() -> None:
    one = Roofline("H100-SXM", MODEL).seconds(decode(64, 1500))
    eight = Roofline("H100-SXM", MODEL, dp=8, ep=True).seconds(decode(512, 1500))
    assert 8 < 8 * one / eight < 32  # each GPU reads an eighth of the experts, for eight times the rows


@pytest.mark.parametrize(
    ("model", "split", "said"),
    [
        ("llama-3.1-8b", {"dp": 2}, r"dp 2 of llama-3.1-8b: without experts .* compare replicas\(n=2\)"),
        ("llama-3.1-8b", {"ep": True}, "ep of llama-3.1-8b: the model has no experts"),
        ("llama-3.1-8b", {"pp": 33}, "pp 33 is over the 32 layers"),
        ("llama-3.1-8b", {"pp": 0}, "pp is 0"),
        ("mixtral-8x7b", {"dp": 4, "tp": 4, "ep": True}, r"tp 4 \* dp 4 is over the 8 experts"),
    ],
)
def test_a_split_that_cannot_be_is_refused(model: str, split: dict[str, Any], said: str) -> None:
    with pytest.raises(LimitError, match=said):
        Roofline("H100-SXM", model, **split)


@pytest.mark.parametrize(
    ("split", "said"),
    [
        ((1, 1, True, False), "dp is True"),
        ((1, 2.0, 1, False), "pp is 2.0"),
        ((1, 1, 1, 8), "ep is 8, but must be True or False"),
    ],
)
def test_a_split_that_is_no_count_is_refused(split: Any, said: str) -> None:
    with pytest.raises(LimitError, match=said):
        check_split(MODELS["mixtral-8x7b"], *split)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"router_skew": -1.0}, "router_skew of roofline is -1"),
        ({"router_skew": 21.0}, "router_skew of roofline is 21.0, but must be at least 0 and at most 20"),
        ({"context_cv": float("nan")}, "context_cv of roofline is nan"),
    ],
)
def test_an_impossible_spread_is_refused(settings: dict[str, float], said: str) -> None:
    with pytest.raises(CostError, match=said):
        Roofline("H100-SXM", MODEL, dp=2, **settings)
    with pytest.raises(CostError, match="has no experts"):
        Roofline("H100-SXM", "llama-3.1-8b", router_skew=1.0)
