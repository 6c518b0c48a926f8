"""What a workload holds, whatever it was read from, and the loads that are made."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchwright.errors import InputError
from batchwright.request import LONGEST, Request
from batchwright.workload import Workload, chat, poisson

outputs = st.lists(st.integers(1, 5000), min_size=1, max_size=20)


def load_of(output: list[int], **options: object) -> Workload:
    return Workload.from_columns(range(len(output)), [10] * len(output), output, **options)


@settings(derandomize=True)
@given(outputs)
def test_by_default_max_tokens_is_the_greatest_output_and_that_is_said(output: list[int]) -> None:
    load = load_of(output)
    assert load.max_tokens.tolist() == [max(output)] * len(output)
    assert load.output.tolist() == output
    assert load.token_limit.is_default and not load.token_limit.is_oracle
    assert f"max_tokens is {max(output)}, the greatest output of the workload (none was given)" in load.notes


@settings(derandomize=True)
@given(outputs, st.integers(1, 6000))
def test_a_given_max_tokens_cuts_longer_outputs_and_counts_them(output: list[int], limit: int) -> None:
    load = load_of(output, max_tokens=limit)
    assert load.output.tolist() == [min(tokens, limit) for tokens in output]
    assert load.num_cut == sum(tokens > limit for tokens in output)
    assert [r.max_tokens for r in load.requests()] == [limit] * len(output)
    assert any("cut" in note for note in load.notes) == (load.num_cut > 0)
    assert load.with_max_tokens(None) == load_of(output)


@settings(derandomize=True)
@given(outputs)
def test_exact_max_tokens_is_labelled_an_oracle(output: list[int]) -> None:
    load = load_of(output, max_tokens="exact")
    assert load.max_tokens.tolist() == load.output.tolist() == output
    assert load.token_limit.is_oracle
    assert any("oracle" in note for note in load.notes)


@settings(derandomize=True)
@given(
    st.lists(st.tuples(st.integers(1, 99), st.integers(1, 99)), min_size=1, max_size=9), st.integers(1, 99)
)
def test_the_own_max_tokens_of_a_workload_come_first(pairs: list[tuple[int, int]], limit: int) -> None:
    output, own = map(list, zip(*pairs, strict=True))
    load = load_of(output, max_tokens=own)
    assert load.max_tokens.tolist() == own
    assert not load.token_limit.is_default
    assert load.output.tolist() == [min(pair) for pair in pairs]
    assert load.with_max_tokens(limit).max_tokens.tolist() == [min(mine, limit) for mine in own]


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "exakt", "512", LONGEST + 1])
def test_an_impossible_max_tokens_is_refused(limit: object) -> None:
    with pytest.raises(InputError, match="max_tokens"):
        load_of([1]).with_max_tokens(limit)
    with pytest.raises(InputError, match="max_tokens"):
        load_of([1], max_tokens=limit)


def test_requests_are_fresh_numbered_and_hold_the_columns() -> None:
    load = Workload.from_columns([2, 2.5], [7, 8], [3, 4], priority=[1, -2], client=[5, 0], max_tokens=9)
    first, second = load.requests()
    assert (first.id, first.arrival, first.prompt, first.true_output, first.max_tokens) == (0, 0.0, 7, 3, 9)
    assert (first.priority, first.client, list(first.prefix)) == (1, 5, [])
    assert (second.id, second.arrival, second.prompt, second.true_output) == (1, 0.5, 8, 4)
    assert (second.priority, second.client) == (-2, 0)
    assert next(load.requests()) is not first
    assert [type(value) for value in (first.arrival, first.prompt, first.true_output)] == [float, int, int]


def test_requests_are_made_only_as_they_are_taken() -> None:
    load = chat(200_000)
    requests = load.requests()
    assert [next(requests).id for _ in range(3)] == [0, 1, 2]
    numbered = [request.id for request in chat(20_000).requests()]
    assert numbered == list(range(20_000))


@settings(derandomize=True)
@given(outputs, st.data())
def test_a_head_is_the_first_requests_under_the_same_limits(output: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(output)))
    hashes = [[index] for index in range(len(output))]
    whole = load_of(output, hash_ids=hashes)
    head = whole.head(count)
    assert len(head) == count
    assert head.max_tokens.tolist() == [max(output)] * count
    assert [fields(r) for r in head.requests(2)] == [fields(r) for r in whole.requests(2)][:count]
    assert whole.head(len(output)) == whole


def fields(request: Request) -> list[object]:
    names = ("id", "arrival", "prompt", "true_output", "max_tokens", "priority", "client")
    return [*(getattr(request, name) for name in names), list(request.prefix)]


@pytest.mark.parametrize("count", [0, -1, 4])
def test_a_head_of_more_than_there_is_is_refused(count: int) -> None:
    with pytest.raises(InputError, match="give 1 to 3"):
        load_of([1, 2, 3]).head(count)


def test_columns_are_copied_and_never_change() -> None:
    mine = np.array([1, 2])
    load = Workload.from_columns([0.0, 1.0], mine, [3, 4])
    mine[0] = 99
    assert load.prompt.tolist() == [1, 2]
    for column in (load.arrival, load.prompt, load.output, load.max_tokens, load.head(1).prompt):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 5


def test_workloads_are_equal_by_their_requests_alone() -> None:
    load = load_of([3, 4], name="a")
    assert load == load_of([3, 4], name="b") and hash(load) == hash(load_of([3, 4]))
    assert pickle.loads(pickle.dumps(load)) == load
    others = [load_of([3, 5]), load_of([3, 4], max_tokens=9), load_of([3, 4], client=[0, 0])]
    others += [load_of([3, 4], priority=[0, 0]), load_of([3, 4], hash_ids=[[0], [1]]), load_of([3])]
    assert len({load, *others}) == 1 + len(others)


def test_the_summary_says_how_many_how_fast_and_how_long() -> None:
    load = Workload.from_columns([0, 1, 4], [10, 20, 60], [1, 2, 3], name="mine")
    assert (load.span, load.rate) == (4.0, 0.5)
    assert load.gap_cv == 0.5  # gaps 1 and 3
    assert load.prompt_spread == (30.0, 20.0, pytest.approx(59.2))
    said = "mine: 3 requests over 4.0 s (0.5/s), prompt 30/20/59, output 2/2/3 tokens (mean/p50/p99)"
    assert load.describe() == said


@pytest.mark.parametrize("count", [1, 5])
def test_a_load_that_comes_at_once_has_an_infinite_rate(count: int) -> None:
    load = Workload.from_columns([3.0] * count, [1] * count, [1] * count)
    assert (load.span, load.rate, load.gap_cv) == (0.0, math.inf, 0.0)
    assert load.describe().startswith(
        f"columns: {'1 request at 0 s' if count == 1 else '5 requests all at once'}, "
    )


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"arrival": []}, "0 requests"),
        ({"arrival": [0, -1]}, "request 1: arrival is -1"),
        ({"arrival": [2, 1]}, "request 1: arrival is -1"),
        ({"arrival": [0, math.nan]}, "request 1: arrival is nan"),
        ({"arrival": [0, math.inf]}, "request 1: arrival is inf"),
        ({"arrival": [0, 1e9]}, "request 1: arrival is 1000000000"),
        ({"arrival": [[0], [1]]}, "arrival is no flat array of numbers"),
        ({"prompt": [1, 0]}, "request 1: prompt is 0, but must be 1 to"),
        ({"prompt": [LONGEST + 1, 1]}, "request 0: prompt is 16777217"),
        ({"prompt": [1.0, 2.0]}, "prompt is no flat array of whole numbers"),
        ({"prompt": [[1], [2, 3]]}, "prompt is no flat array of whole numbers"),
        ({"prompt": [1, 10**30]}, "prompt is no flat array of whole numbers"),
        ({"output": [True, True]}, "output is no flat array of whole numbers"),
        ({"output": [1]}, "1 values of output for 2 arrivals"),
        ({"client": [0, -1]}, "request 1: client is -1"),
        ({"priority": ["a", "b"]}, "priority is no flat array of whole numbers"),
        ({"hash_ids": [[1]]}, "1 lists of hash_ids for 2 requests"),
        (
            {"hash_ids": [[1], [1, 2]]},
            "request 1: hash_ids has 2 hashes, but a prompt of 5 tokens has 1 pieces",
        ),
    ],
)
def test_impossible_columns_are_refused(changed: dict[str, object], said: str) -> None:
    columns = {"arrival": [0, 1], "prompt": [5, 5], "output": [5, 5], **changed}
    with pytest.raises(InputError) as caught:
        Workload.from_columns(**columns)
    assert str(caught.value).startswith(said) or said in str(caught.value)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.integers(1, 400), st.floats(0.01, 1e5), st.integers(0, 2**64 - 1))
def test_the_same_seed_makes_the_same_bytes_and_another_does_not(n: int, rate: float, seed: int) -> None:
    for make in (lambda s: chat(n, rate, s), lambda s: poisson(n, rate, 100, 10, s)):
        load = make(seed)
        assert len(load) == n and load.arrival[0] == 0.0
        assert load.arrival.tobytes() == make(seed).arrival.tobytes()
        assert load == make(seed)
        assert n < 5 or load != make(seed ^ 1)


def test_chat_is_bursty_and_has_the_means_that_it_states() -> None:
    load = chat(200_000, rate=5.0, seed=1)
    assert load.rate == pytest.approx(5.0, rel=0.02)  # four standard errors: 4 * CV / sqrt(n)
    assert load.gap_cv == pytest.approx(2.0, rel=0.03)
    assert load.prompt_spread.p50 == pytest.approx(700, rel=0.01)
    assert load.prompt_spread.mean == pytest.approx(1040, rel=0.01)
    assert load.output_spread.p50 == pytest.approx(160, rel=0.01)
    assert load.output_spread.mean == pytest.approx(230, rel=0.01)
    assert (load.output == 1024).mean() == pytest.approx(0.02, rel=0.1)
    assert (load.prompt.min() >= 1, load.prompt.max(), load.output.max()) == (True, 8192, 1024)


def test_poisson_has_exponential_gaps_and_one_shape() -> None:
    load = poisson(200_000, rate=40.0, prompt=512, output=128, seed=2)
    gaps = np.diff(load.arrival)
    assert load.rate == pytest.approx(40.0, rel=0.01)
    assert load.gap_cv == pytest.approx(1.0, rel=0.02)
    assert (gaps > 1 / 40).mean() == pytest.approx(math.exp(-1), abs=0.005)
    assert set(load.prompt.tolist()) == {512} and set(load.output.tolist()) == {128}


@pytest.mark.parametrize(
    "make",
    [
        lambda: chat(0),
        lambda: chat(1.5),
        lambda: chat(10**9),
        lambda: chat(rate=0),
        lambda: chat(rate=-1),
        lambda: chat(rate=math.nan),
        lambda: chat(rate=math.inf),
        lambda: chat(seed=-1),
        lambda: chat(1000, rate=1e-9),
        lambda: poisson(5, 1.0, 0, 1),
        lambda: poisson(5, 1.0, 1, LONGEST + 1),
    ],
)
def test_an_impossible_load_is_refused(make: Callable[[], Workload]) -> None:
    with pytest.raises(InputError, match=r"give|raise"):
        make()


def test_the_built_in_load_opens_by_name_unless_a_file_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Workload.open("chat") == chat()
    assert Workload.open("chat", max_tokens=100) == chat().with_max_tokens(100)
    (tmp_path / "chat").write_text("arrival,prompt,output\n0,1,1\n")
    assert len(Workload.open("chat")) == 1
