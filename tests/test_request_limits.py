"""What a request and the limits of a server refuse, and how a word is matched."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchwright.errors import BatchwrightError, LimitError, RequestError, nearest
from batchwright.limits import UNLIMITED, Limits
from batchwright.request import LONGEST, NO_KEYS, WAITING, Request

# --- requests -----------------------------------------------------------------------


def test_a_new_request_waits_and_has_done_nothing() -> None:
    r = Request(3, 1.5, 10, 4)
    assert (r.id, r.arrival, r.prompt, r.true_output, r.max_tokens) == (3, 1.5, 10, 4, 4)
    assert (r.state, r.computed, r.generated, r.tokens, r.unfilled) == (WAITING, 0, 0, 10, 10)
    assert (r.priority, r.client, r.preemptions, len(r.prefix)) == (0, 0, 0, 0)


def test_a_client_may_allow_more_or_less_than_it_gets() -> None:
    assert [Request(0, 0.0, 10, 4, max_tokens=n).max_tokens for n in (1, 4, 900)] == [1, 4, 900]


def test_unfilled_counts_what_a_resumed_request_must_recompute() -> None:
    r = Request(0, 0.0, 10, 4)
    r.generated, r.computed = 3, 5
    assert (r.tokens, r.unfilled) == (13, 8)


@pytest.mark.parametrize("arrival", [nan, inf, -inf, -0.5, -1e-300])
def test_an_arrival_is_a_time(arrival: float) -> None:
    with pytest.raises(RequestError) as caught:
        Request(7, arrival, 10, 4)
    assert str(caught.value) == f"request 7: arrival {arrival} is not a time; give seconds of at least 0"


@pytest.mark.parametrize("tokens", [0, -1, LONGEST + 1, 10**12])
@pytest.mark.parametrize("name", ["prompt", "output"])
def test_a_length_is_at_least_one_token_and_no_longer_than_any_model(name: str, tokens: int) -> None:
    lengths = {"prompt": 10, "output": 4} | {name: tokens}
    with pytest.raises(RequestError) as caught:
        Request(7, 0.0, **lengths)
    message = f"request 7: {name} of {tokens} tokens is outside 1 to {LONGEST}; correct the length"
    assert str(caught.value) == message


def test_the_longest_lengths_are_allowed() -> None:
    assert Request(0, 0.0, LONGEST, 1).prompt == Request(0, 0.0, 1, LONGEST).true_output == LONGEST


@pytest.mark.parametrize("max_tokens", [0, -5])
def test_a_client_allows_at_least_one_token(max_tokens: int) -> None:
    with pytest.raises(RequestError, match=f"request 7: max_tokens .*{max_tokens}"):
        Request(7, 0.0, 10, 4, max_tokens=max_tokens)


def test_a_request_has_no_other_attributes() -> None:
    r = Request(0, 0.0, 10, 4)
    with pytest.raises(AttributeError):
        r.note = 1  # type: ignore[attr-defined]
    assert r.prefix is NO_KEYS and len(NO_KEYS) == 0


# --- limits ----------------------------------------------------------------------------

COUNTS = ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "block_size", "num_kv_blocks")


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [0, -1, 2.0, True, "8", nan])
def test_a_limit_is_a_whole_number_of_at_least_one(name: str, value: Any) -> None:
    with pytest.raises(LimitError) as caught:
        Limits(**{name: value})
    assert str(caught.value) == f"{name} is {value!r}, but must be a whole number of at least 1"


@pytest.mark.parametrize("name", ["max_num_seqs", "max_num_batched_tokens", "block_size"])
def test_a_limit_without_a_none_is_given(name: str) -> None:
    with pytest.raises(LimitError, match=f"{name} is None, but must be a whole number"):
        Limits(**{name: None})


@pytest.mark.parametrize("value", [1, 0, None, "no"])
def test_prefix_caching_is_on_or_off(value: Any) -> None:
    with pytest.raises(LimitError, match="enable_prefix_caching is"):
        Limits(enable_prefix_caching=value)


def test_every_running_request_needs_a_token_of_a_step() -> None:
    Limits(max_num_seqs=64, max_num_batched_tokens=64)
    with pytest.raises(LimitError, match="max_num_seqs 65 is over max_num_batched_tokens 64, the tokens of"):
        Limits(max_num_seqs=65, max_num_batched_tokens=64)


@settings(max_examples=200, derandomize=True, database=None, deadline=None)
@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 4200))
def test_the_longest_request_must_fit_the_kv_cache(size: int, blocks: int, longest: int) -> None:
    if longest <= size * blocks:
        limits = Limits(block_size=size, num_kv_blocks=blocks, max_model_len=longest)
        assert (limits.longest, limits.blocks) == (longest, blocks)
        return
    with pytest.raises(LimitError) as caught:
        Limits(block_size=size, num_kv_blocks=blocks, max_model_len=longest)
    assert str(caught.value) == (
        f"max_model_len {longest} cannot fit {blocks} KV blocks of {size} ({size * blocks} tokens); "
        "lower max_model_len or raise num_kv_blocks"
    )


def test_the_longest_request_is_what_the_model_or_else_the_kv_cache_allows() -> None:
    assert Limits(max_model_len=4096).longest == 4096
    assert Limits(num_kv_blocks=10, block_size=8).longest == 80
    assert Limits(num_kv_blocks=10, block_size=8, max_model_len=79).longest == 79
    assert Limits().longest == LONGEST


def test_a_server_whose_memory_is_not_modelled_has_more_blocks_than_any_run_needs() -> None:
    assert Limits().blocks == UNLIMITED > 10_000 * LONGEST


def test_limits_are_equal_printable_and_by_name_only() -> None:
    assert Limits(max_num_seqs=8) == Limits(max_num_seqs=8) != Limits(max_num_seqs=9)
    assert hash(Limits(max_num_seqs=8)) == hash(Limits(max_num_seqs=8))
    assert "max_num_seqs=8, max_num_batched_tokens=2048" in repr(Limits(max_num_seqs=8))
    with pytest.raises(TypeError):
        Limits(8)  # type: ignore[misc]


# --- errors -------------------------------------------------------------------------------


def test_a_near_word_is_suggested_and_all_are_listed_otherwise() -> None:
    words = ["static", "dynamic", "orca"]
    assert nearest("statik", words) == "; did you mean 'static'?"
    assert nearest("xyz", words) == "; known: dynamic, orca, static"


@settings(max_examples=100, derandomize=True, database=None, deadline=None)
@given(st.sets(st.text("abcdefgh", min_size=4, max_size=9), min_size=1, max_size=8), st.data())
def test_a_word_with_one_wrong_letter_is_near_something(words: set[str], data: st.DataObject) -> None:
    word = data.draw(st.sampled_from(sorted(words)))
    at = data.draw(st.integers(0, len(word) - 1))
    found = nearest(word[:at] + "?" + word[at + 1 :], words)
    assert found.startswith("; did you mean '")
    assert found.split("'")[1] in words


def test_every_error_of_ours_can_be_caught_as_one() -> None:
    with pytest.raises(BatchwrightError):
        Request(0, -1.0, 1, 1)
    with pytest.raises(BatchwrightError):
        Limits(block_size=0)
