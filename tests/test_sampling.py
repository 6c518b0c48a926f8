"""The next token: what may be chosen, how often, and that nothing but the sequence decides it."""

from __future__ import annotations

import warnings
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright import Request
from batchwright.engines.next_token import Row, sample, uniform, weights
from batchwright.engines.sampling import Sampling
from batchwright.engines.sequence import Sequence
from batchwright.errors import InputError

LEAST_SEED, MOST_SEED = -(2**63), 2**64 - 1
seeds = st.integers(LEAST_SEED, MOST_SEED)
rows = st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=60).map(
    lambda numbers: np.array(numbers, np.float32).round(3)  # different logits have different chances
)
samplings = st.builds(
    Sampling,
    temperature=st.floats(0.01, 100),
    top_p=st.floats(0.01, 1),
    top_k=st.integers(0, 70),
    seed=seeds,
)


def sequence(sampling: Sampling | None, num_tokens: int = 0, stops: frozenset[int] = frozenset()) -> Sequence:
    """One that has `num_tokens` tokens, and may not stop before the next."""
    made = Sequence(Request(0, 0.0, 3, 1000), [1, 2, 3], None, stops, num_tokens + 1, None, sampling)
    made.tokens = [0] * num_tokens
    return made


def drawn(logits: Row, sampling: Sampling, num_draws: int) -> list[int]:
    """The tokens of `num_draws` steps with the same logits."""
    return [sample(logits, sequence(sampling, n)) for n in range(num_draws)]


def chances(logits: Row, sampling: Sampling) -> Row:
    """Probabilities, by the definition: sorted, and cut one by one."""
    exact = np.exp((logits.astype(np.float64) - float(logits.max())) / sampling.temperature)
    order = np.argsort(-exact, kind="stable")
    if sampling.top_k:
        order = order[: sampling.top_k]
    share = np.cumsum(exact[order]) / exact[order].sum()
    order = order[: 1 + int(np.argmax(share >= sampling.top_p))] if sampling.top_p < 1 else order
    kept = np.zeros_like(exact)
    kept[order] = exact[order]
    return kept / kept.sum()


@given(logits=rows, sampling=samplings, n=st.integers(0, 10_000))
def test_the_token_is_one_of_those_that_are_kept(logits: Row, sampling: Sampling, n: int) -> None:
    assert weights(logits, sampling)[sample(logits, sequence(sampling, n))] > 0


@given(logits=rows, sampling=samplings)
def test_the_greatest_is_always_kept_and_top_k_keeps_no_less_likely_one(
    logits: Row, sampling: Sampling
) -> None:
    kept = weights(logits, sampling)
    assert kept[logits.argmax()] == kept.max() == 1
    if 0 < sampling.top_k < len(logits):
        assert (kept[logits < np.sort(logits)[-sampling.top_k]] == 0).all()


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("top_p", [0.2, 0.7, 0.95, 1.0])
@pytest.mark.parametrize("top_k", [0, 1, 7, 100])
def test_the_weights_are_those_of_the_definition(temperature: float, top_p: float, top_k: int) -> None:
    sampling = Sampling(temperature=temperature, top_p=top_p, top_k=top_k)
    for seed in range(20):
        logits = np.random.default_rng(seed).normal(scale=4, size=300).astype(np.float32)
        found = weights(logits, sampling)
        assert found / found.sum() == pytest.approx(chances(logits, sampling), rel=1e-3, abs=1e-7)


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    logits = np.array([2.0, 1.0, 0.0, -1.0, -30.0], np.float32)
    sampling = Sampling(temperature=1.3, seed=11)
    num_draws = 20_000
    counts = Counter(drawn(logits, sampling, num_draws))
    for token, chance in enumerate(chances(logits, sampling)):
        expected, deviation = chance * num_draws, np.sqrt(chance * (1 - chance) * num_draws)
        assert abs(counts[token] - expected) <= 5 * deviation + 1


@given(logits=rows, sampling=samplings, n=st.integers(0, 10_000))
def test_a_draw_depends_on_the_seed_and_its_number_alone(logits: Row, sampling: Sampling, n: int) -> None:
    first = sample(logits, sequence(sampling, n))
    drawn(logits, Sampling(seed=1), 3)
    assert sample(logits, sequence(sampling, n)) == first


def test_other_seeds_and_later_draws_are_other_draws() -> None:
    draws = {uniform(seed, n) for seed in (LEAST_SEED, -2, 0, 1, 2**62, MOST_SEED) for n in range(1000)}
    assert len(draws) == 6000
    assert 0 <= min(draws) < 0.01 and 0.99 < max(draws) < 1


@given(logits=rows, sampling=st.none() | samplings, data=st.data())
def test_a_sequence_that_may_not_stop_gets_no_token_that_stops_it(
    logits: Row, sampling: Sampling | None, data: st.DataObject
) -> None:
    allowed = data.draw(st.integers(0, len(logits) - 1))
    unknown_to_the_model = {len(logits), len(logits) + 7, -1}
    stops = frozenset(set(range(len(logits))) - {allowed} | unknown_to_the_model)
    before = logits.copy()
    assert sample(logits, sequence(sampling, 0, stops)) == allowed
    assert (logits == before).all()


@given(logits=rows)
def test_a_temperature_next_to_nothing_and_top_k_1_are_greedy_up_to_equals(logits: Row) -> None:
    for sampling in (Sampling(temperature=5e-324), Sampling(top_k=1), Sampling(top_p=5e-324)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert logits[sample(logits, sequence(sampling))] == logits.max()


@given(logits=rows)
def test_without_sampling_the_first_of_the_greatest_is_chosen(logits: Row) -> None:
    assert sample(logits, sequence(None)) == int(logits.argmax())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("temperature", value) for value in (0.0, -1.0, float("nan"), float("inf"))),
        *(("top_p", value) for value in (0.0, -0.1, 1.1, float("nan"))),
        *(("top_k", value) for value in (-1, 1.5, True)),
        *(("seed", value) for value in (LEAST_SEED - 1, MOST_SEED + 1, 0.5)),
    ],
)
def test_a_value_that_cannot_be_is_an_error_that_names_it(name: str, value: float) -> None:
    with pytest.raises(InputError, match=f"^{name} is {value}, but must be"):
        Sampling(**{name: value})  # type: ignore[arg-type]
