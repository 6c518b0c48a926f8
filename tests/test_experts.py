"""Experts over ranks against routers that draw them one by one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from batchwright.cost import Roofline
from batchwright.cost.experts import Router, at_most, inclusion, normal_scores
from batchwright.hardware import Gpu, Model
from batchwright.step import Step

ROUTERS = [(256, 8, 8), (256, 8, 32), (128, 8, 4), (64, 6, 8), (8, 2, 4), (8, 2, 8)]


def choices(random: Any, chances: list[float], active: int, shape: tuple[int, int]) -> Any:
    """Is the expert chosen, by trial, token and expert?  A systematic sample of a shuffled list.

    It has exactly these chances: a token's `active` points, one apart, fall on the experts that lie there.
    """
    size = (*shape, len(chances))
    order = random.random(size).argsort(axis=-1)
    ends = np.cumsum(np.array(chances)[order], axis=-1)
    ends[..., -1] = active  # but for rounding
    start = random.random((*shape, 1))
    points = np.diff(np.floor(ends + start), axis=-1, prepend=0.0)
    chosen = np.zeros(size, bool)
    np.put_along_axis(chosen, order, points > 0, axis=-1)
    return chosen


def simulated(experts: int, active: int, ranks: int, tokens: int, skew: float) -> Any:
    """Mean pairs and mean distinct experts of the rank that has the most of each; dealt in turn."""
    random, trials = np.random.default_rng(7), max(60, 6000 // tokens)
    chosen = choices(random, inclusion(experts, active, skew), active, (trials, tokens))
    pairs, touched = chosen.sum(axis=1), chosen.any(axis=1)
    ends = [(pairs[:, r::ranks].sum(axis=1), touched[:, r::ranks].sum(axis=1)) for r in range(ranks)]
    return np.array(ends).max(axis=0).mean(axis=1)


# Source: the exact mean under a uniform router, E (1 - (1 - k/E)^n), and its value where routers are skewed.
@pytest.mark.parametrize(("experts", "active", "tokens", "distinct"), [
    (256, 8, 4, 30.53), (256, 8, 64, 222.4), (64, 6, 16, 50.75), (8, 2, 1, 2.0),
])  # fmt: skip
def test_distinct_experts_of_a_uniform_router(
    experts: int, active: int, tokens: int, distinct: float
) -> None:
    assert Router(experts, active).touched(tokens) == pytest.approx(distinct, rel=2e-4)
    assert Router(experts, active).used(tokens) == pytest.approx(tokens * active)


@pytest.mark.parametrize("skew", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("tokens", [1, 16, 100])
def test_a_skewed_router_touches_fewer_experts(skew: float, tokens: int) -> None:
    found = Router(64, 6, 1, skew).touched(tokens)
    _, distinct = simulated(64, 6, 1, tokens, skew)
    assert found == pytest.approx(distinct, rel=0.02)
    assert found <= Router(64, 6).touched(tokens) * (1 + 1e-12)


@pytest.mark.parametrize("router", ROUTERS)
@pytest.mark.parametrize("tokens", [1, 8, 64, 300])
def test_the_busiest_rank_of_a_uniform_router(router: tuple[int, int, int], tokens: int) -> None:
    pairs, distinct = simulated(*router, tokens, 0.0)
    found = Router(*router)
    assert found.used(tokens) == pytest.approx(pairs, rel=0.04)
    assert found.touched(tokens) == pytest.approx(distinct, rel=0.04)


@pytest.mark.parametrize("skew", [0.3, 1.0])
@pytest.mark.parametrize("tokens", [8, 64, 300])
def test_the_busiest_rank_of_a_skewed_router(skew: float, tokens: int) -> None:
    pairs, distinct = simulated(64, 6, 8, tokens, skew)
    found = Router(64, 6, 8, skew)
    assert found.used(tokens) == pytest.approx(pairs, rel=0.04)
    assert found.touched(tokens) == pytest.approx(distinct, rel=0.04)


@pytest.mark.parametrize(("size", "chance"), [(1, 0.3), (12, 0.5), (40, 0.02), (9, 1.0)])
def test_the_law_of_a_mean_and_a_variance_is_binomial(size: int, chance: float) -> None:
    found = at_most(size * chance, size * chance * (1 - chance))
    exact = np.cumsum([math.comb(size, k) * chance**k * (1 - chance) ** (size - k) for k in range(size + 1)])
    padded = np.concatenate([exact, np.ones(2)])
    assert np.allclose(found, padded[: len(found)], atol=1e-7)
    assert found[-1] == 1.0 and np.all(padded[len(found) - 1 :] > 1 - 1e-7)


def test_the_law_of_equal_mean_and_variance_is_poisson() -> None:
    exact = np.cumsum([math.exp(-2.5) * 2.5**k / math.factorial(k) for k in range(30)])
    found = at_most(2.5, 2.5)
    assert np.allclose(found, exact[: len(found)], atol=1e-7)
    assert at_most(0.0, 0.0) == [1.0]


def test_chances_sum_to_the_experts_of_a_token_and_none_is_over_one() -> None:
    for skew in (0.0, 0.7, 3.0, 40.0):
        chances = inclusion(64, 6, skew)
        assert sum(chances) == pytest.approx(6) and max(chances) <= 1.0
        assert chances == sorted(chances, reverse=True)
    assert inclusion(4, 4, 1.0) == [1.0] * 4


# Source: Blom 1958; the exact expected maxima are 0, 0.5642, 1.1630 (5) and 1.4236 (8).
def test_normal_scores_are_near_the_expected_maxima() -> None:
    found = normal_scores(8)
    assert found[:2] == [0.0, 0.0] and found[8] == pytest.approx(1.434, abs=1e-3)
    drawn = np.random.default_rng(1).normal(size=(40_000, 8)).max(axis=1).mean()
    assert found[8] == pytest.approx(drawn, rel=0.015)


FAST = 1e30  # FLOP/s or bytes/s: takes no time
LINK = 1e9
WIRES = Gpu(
    name="wires", memory_bytes=1 << 40, bandwidth=FAST, flops=FAST, link=LINK, switched=True, source="test"
)


def mixture(experts: int, active: int, layers: int = 4) -> Model:
    return Model(
        name="moe", layers=layers, hidden=512, heads=8, kv_heads=8, head_dim=64, intermediate=1, vocab=8,
        max_position_embeddings=4096, moe_layers=layers, experts=experts, active_experts=active,
        moe_intermediate=1024,
    )  # fmt: skip


def decode(rows: int, context: int = 0) -> Step:
    step = Step()
    step.quiet(rows, 0, rows * context)
    return step


@pytest.mark.parametrize(("dp", "rows"), [(4, 256), (8, 512)])
def test_the_bytes_of_the_all_to_all_are_those_of_tokens_sent_one_by_one(dp: int, rows: int) -> None:
    model, random = mixture(32, 4), np.random.default_rng(3)
    chosen = choices(random, [4 / 32] * 32, 4, (60, rows))
    wanted = np.stack([chosen[..., rank::dp].any(axis=2) for rank in range(dp)], axis=2)
    wanted[:, np.arange(rows), np.arange(rows) % dp] = False  # what is at home is not sent
    worst = wanted.sum(axis=1).max(axis=1).mean()
    there_and_back = 2 * model.layers * worst * 512 * 2 / LINK
    hops = model.layers * 2 * 0.6e-6 + 2 * np.log2(dp) * 0.6e-6
    found = Roofline(WIRES, model, dp=dp, ep=True, fixed_seconds=1e-9).seconds(decode(rows))
    assert found == pytest.approx(there_and_back + hops, rel=0.03)


def test_cut_experts_gather_the_tokens_of_all_ranks() -> None:
    model = mixture(32, 4)
    found = Roofline(WIRES, model, dp=4, fixed_seconds=1e-9).seconds(decode(64))
    gathered = model.layers * 2 * 3 / 4 * 64 * 512 * 2 / LINK
    hops = (model.layers + 1) * 2 * 2 * 0.6e-6
    assert found == pytest.approx(gathered + hops + 1e-9, rel=1e-9)


def test_one_rank_of_expert_parallel_sends_what_tensor_parallel_does() -> None:
    model = mixture(32, 4)
    whole, cut = (Roofline(WIRES, model, 4, ep=ep, fixed_seconds=1e-9) for ep in (True, False))
    assert whole.seconds(decode(64)) == pytest.approx(cut.seconds(decode(64)), rel=1e-9)


SLOW = Gpu(
    name="slow", memory_bytes=1 << 40, bandwidth=1e11, flops=FAST, link=FAST, switched=True, source="test"
)


@pytest.mark.parametrize("rows", [1, 4, 32])
def test_a_step_waits_for_the_rank_that_reads_most_experts(rows: int) -> None:
    model = mixture(32, 4)
    _, distinct = simulated(32, 4, 4, rows, 0.0)
    free = {"mfu": 1.0, "mbu": 1.0, "fixed_seconds": 1e-9}
    found = Roofline(SLOW, model, 4, ep=True, **free).seconds(decode(rows))
    cut = Roofline(SLOW, model, 4, **free).seconds(decode(rows))
    expert = model.layers * model.expert_parameters * 2 / 1e11
    shared = cut - Router(32, 4).touched(rows) * expert / 4  # all but experts
    assert found - shared == pytest.approx(distinct * expert, rel=0.05)
    assert found > cut
