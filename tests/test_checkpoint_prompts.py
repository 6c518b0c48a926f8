"""Token ids for the requests of a workload: shared exactly where their prefix keys are."""

from __future__ import annotations

from array import array

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from batchwright.checkpoint import prompt_ids
from batchwright.errors import InputError
from batchwright.request import Request

pytestmark = pytest.mark.pure

PLAIN = np.array([id for id in range(50_000) if id % 7])
BLOCK = 16
KEYS = st.lists(st.integers(0, 1 << 62), max_size=4)
IDS = st.integers(0, 1 << 37)


def prompt(keys: list[int], tail: int, id: int = 0, seed: int = 0) -> list[int]:
    return prompt_ids(
        Request(id, 0.0, len(keys) * BLOCK + tail, 1, prefix=array("q", keys)), BLOCK, PLAIN, seed
    )


@given(keys=KEYS, tail=st.integers(1, 40), id=IDS, seed=st.integers())
def test_a_prompt_has_its_length_plain_tokens_and_is_the_same_again(
    keys: list[int], tail: int, id: int, seed: int
) -> None:
    found = prompt(keys, tail, id, seed)
    assert len(found) == len(keys) * BLOCK + tail and all(token % 7 for token in found)
    assert found == prompt(keys, tail, id, seed)


@given(shared=KEYS, a=KEYS, b=KEYS, ids=st.tuples(IDS, IDS), tail=st.integers(BLOCK, 40))
def test_prompts_share_tokens_exactly_where_they_share_keys(
    shared: list[int], a: list[int], b: list[int], ids: tuple[int, int], tail: int
) -> None:
    assume(ids[0] != ids[1] and not (set(a) & set(b)))
    one, two = prompt(shared + a, tail, ids[0]), prompt(shared + b, tail, ids[1])
    common = len(shared) * BLOCK
    assert one[:common] == two[:common]
    assert one[common : common + BLOCK] != two[common : common + BLOCK]


def test_another_seed_makes_other_tokens() -> None:
    assert prompt([5], 16, seed=1)[:BLOCK] != prompt([5], 16, seed=2)[:BLOCK]
    assert prompt([5], 16, seed=1)[BLOCK:] != prompt([5], 16, seed=2)[BLOCK:]


def test_a_request_is_not_taken_for_a_key() -> None:
    assert prompt([5], 1, id=0)[:BLOCK] != prompt([], BLOCK, id=5)


def test_tokens_are_uniform_and_do_not_hang_together() -> None:
    """Chi-squared over 64 bins, for the tokens and for the differences of neighbours; 5 sigma."""
    plain = np.arange(1 << 16)
    keys = array("q", range(500))
    keyed = np.array(prompt_ids(Request(1, 0.0, 64_000, 1, prefix=keys), 64, plain, 3))
    own = np.array(prompt_ids(Request(2, 0.0, 64_000, 1), 64, plain, 3))
    for tokens in (keyed, own, np.diff(keyed) % len(plain), np.diff(own) % len(plain)):
        counts = np.bincount(tokens // 1024, minlength=64)
        expected = len(tokens) / 64
        assert abs(((counts - expected) ** 2 / expected).sum() - 63) < 5 * (2 * 63) ** 0.5


def test_keys_of_another_block_size_are_refused() -> None:
    with pytest.raises(InputError, match="2 prefix keys of 32 tokens are more than its prompt of 40"):
        prompt_ids(Request(0, 0.0, 40, 1, prefix=array("q", [1, 2])), 32, PLAIN, 0)
