"""A policy within another: texts that are nested are read by the table that the outer one names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchwright.errors import BatchwrightError, InputError
from batchwright.policies import POLICIES, Orca, Static, Vllm
from batchwright.policies.text import part, read, split


@dataclass(frozen=True)
class Sauce:
    heat: float = 1.0
    version: str = "1"


def sauce(text: str) -> Any:
    return read(text, {"sauce": Sauce}, "sauce")


@dataclass(frozen=True)
class Double:
    """Holds a policy of its own table, one of another kind, and words."""

    count: int = 2
    policy: Any = field(default=None, metadata=part())
    sauce: Any = field(default=None, metadata=part(sauce))
    gpus: Any = field(default=(), metadata=part(str))


KINDS: dict[str, type] = {**POLICIES, "double": Double}


def double(text: str) -> Any:
    return read(text, KINDS)


READ = {
    "double(policy=vllm)": Double(policy=Vllm()),
    "double(4, vllm@0.19(max-num-seqs=64))": Double(4, Vllm(version="0.19", max_num_seqs=64)),
    "Double(policy = static( 8, padded=false ), count=3)": Double(3, Static(8, False)),
    "double(sauce=sauce@2(heat=0.5), policy=orca)": Double(policy=Orca(), sauce=Sauce(0.5, "2")),
    "double(policy=[vllm, static(8, true)])": Double(policy=(Vllm(), Static(8, True))),
    "double(policy=double(policy=double(5)))": Double(policy=Double(policy=Double(5))),
    "double(gpus=[H100-SXM, A100-80GB])": Double(gpus=("H100-SXM", "A100-80GB")),
    "double(gpus=[])": Double(),
    "double(policy=None)": Double(),
    "double(policy='vllm(max_num_seqs=2)')": Double(policy=Vllm(max_num_seqs=2)),
}


@pytest.mark.parametrize("text", READ)
def test_a_text_within_a_text_is_read_by_itself(text: str) -> None:
    assert double(text) == READ[text]
    assert double(f" {text} ") == READ[text]


@pytest.mark.parametrize("text", READ)
def test_what_is_printed_of_it_can_be_read(text: str) -> None:
    assert double(repr(READ[text])) == READ[text]


def test_commas_within_brackets_do_not_split() -> None:
    assert split("a(b, c(d, e)), [f, g], h") == ["a(b, c(d, e))", "[f, g]", "h"]


WRONG = {
    "double(policy=vlm)": "unknown policy 'vlm'; did you mean 'vllm'?",
    "double(sauce=vllm)": "unknown sauce 'vllm'; known: sauce",
    "double(sauce=sauce(hot=1))": "sauce 'sauce' has no flag 'hot'",
    "double(policy=orca(zzz=3))": "policy 'orca' has no flag 'zzz'; known: max_batch_size",
    "double(2, vllm, policy=vllm)": "policy 'double': policy is given twice; leave one out",
    "double(policy=vllm, policy=orca)": "policy 'double'",
    "double(policy=)": "policy '' is not of the form",
    "double(policy=vllm(max_num_seqs=2)": "is not of the form",
    "double(polic=vllm(max_num_seqs=2))": "policy 'double' has no flag 'polic'; did you mean 'policy'?",
    "double(1, vllm, none, none, 5)": "policy 'double' takes at most 4 values, but 5 are given",
    "double(" * 20 + ")" * 20: "has over 16 brackets in brackets; write less",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_nested_text_that_is_wrong_says_what_is(text: str) -> None:
    with pytest.raises(InputError) as caught:
        double(text)
    assert WRONG[text] in str(caught.value)
    assert "\n" not in str(caught.value)


PIECES = st.sampled_from(
    ["double", "policy", "sauce", "vllm", "(", ")", "[", "]", ",", "=", "@", "1", "0.5", "none", "'", '"']
)


@settings(max_examples=400, derandomize=True, database=None, deadline=None)
@given(st.lists(PIECES, max_size=14).map("".join))
def test_no_nested_text_raises_anything_but_our_own_errors(text: str) -> None:
    for whole in (text, f"double({text})", f"double(policy={text})"):
        try:
            double(whole)
        except BatchwrightError as error:
            assert len(str(error)) > 20
