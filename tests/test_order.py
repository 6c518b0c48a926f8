"""Orders of the waiting, by hand: who is admitted when, with exact times."""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Callable
from math import exp, log, nan
from pathlib import Path
from typing import Any

import pytest

import batchwright
from batchwright import Constant, Limits, Linear, Request, Simulator
from batchwright.batch import Batch
from batchwright.engines.live import Live
from batchwright.engines.mock import Mock
from batchwright.errors import InputError, PolicyError
from batchwright.policies import (
    Dynamic,
    Edf,
    Fcfs,
    Lpm,
    Orca,
    Ordered,
    Priority,
    Sjf,
    Srpt,
    Static,
    Vllm,
    Vtc,
    policy,
)
from batchwright.prediction import Lengths, normal
from batchwright.scenario.policy_file import load_policy
from peers import PEERS
from test_schedules import finished, load, served

SYNC = Vllm(async_scheduling=False)
SECOND = Constant(1.0)
ONE_SEAT = Limits(max_num_seqs=1, block_size=4, enable_prefix_caching=False)


def ended(order: Any, make: Callable[[], list[Request]], limits: Limits = ONE_SEAT) -> list[float]:
    """When each request ends, in steps of 1 s; also walked and audited."""
    return finished(served(Ordered(order, SYNC), make, SECOND, limits))


def requests(*rows: dict[str, Any]) -> Callable[[], list[Request]]:
    return lambda: [Request(i, **({"arrival": 0.0, "prompt": 4} | row)) for i, row in enumerate(rows)]


# --- shortest first ---------------------------------------------------------------------------


def test_the_shortest_is_admitted_first_by_what_the_client_allows() -> None:
    # 0 runs when the others come; then 2, whose limit is least though its output is not, then 1.
    make = requests(
        {"output": 2}, {"arrival": 0.5, "output": 1, "max_tokens": 9}, {"arrival": 0.75, "output": 3}
    )
    assert ended(Sjf(), make) == [2.0, 6.0, 5.0]


def test_an_oracle_knows_the_outputs() -> None:
    make = requests(
        {"output": 2}, {"arrival": 0.5, "output": 1, "max_tokens": 9}, {"arrival": 0.75, "output": 3}
    )
    assert ended(Sjf("exact"), make) == [2.0, 3.0, 6.0]
    assert "oracle" in Ordered(Sjf("exact")).note and "oracle" in Ordered(Sjf(0.0)).note


def test_a_predictor_of_ones_own_sees_the_request() -> None:
    by_prompt = Sjf(predict=lambda r: 100.0 / r.prompt)
    make = requests({"output": 1}, {"prompt": 2, "output": 1}, {"prompt": 50, "output": 1})
    assert ended(by_prompt, make, Limits(max_num_seqs=1)) == [2.0, 3.0, 1.0]


@pytest.mark.parametrize("said", [nan, -1, "long", None, 1e999])
def test_a_predictor_that_says_no_length_is_an_error(said: Any) -> None:
    simulator = Simulator(Ordered(Sjf(predict=lambda r: said), SYNC), SECOND, ONE_SEAT)
    with pytest.raises(PolicyError, match=r"the predictor says .* of request 0; let it say tokens"):
        simulator.run([Request(0, 0.0, 4, 1)])


def test_a_predictors_error_is_lognormal_with_its_sigma() -> None:
    guesses = [Lengths(0.5, 3)(Request(i, 0.0, 1, 200)) / 200 for i in range(4000)]
    logs = [log(guess) for guess in guesses]
    mean = sum(logs) / len(logs)
    assert mean == pytest.approx(0.0, abs=3 * 0.5 / 4000**0.5)
    assert (sum((x - mean) ** 2 for x in logs) / len(logs)) ** 0.5 == pytest.approx(0.5, rel=0.04)
    assert sum(guess < exp(0.5) for guess in guesses) / 4000 == pytest.approx(0.8413, abs=0.02)


def test_a_request_has_the_same_error_under_every_policy_and_another_with_another_seed() -> None:
    assert normal(3, 17) == normal(3, 17)
    assert len({normal(seed, id) for seed in range(20) for id in range(20)}) == 400


def test_a_live_engine_does_not_know_its_lengths() -> None:
    sizes = {"num_kv_blocks": 64, "block_size": 4, "max_model_len": 64, "vocab_size": 100}
    engine = Mock(Constant(1.0), **sizes, is_real=False)
    limits = Limits(block_size=4, num_kv_blocks=64, max_num_seqs=2, max_num_batched_tokens=64)
    with pytest.raises(PolicyError, match=r"asks how long outputs will be, which only a simulator knows"):
        Live(Ordered(Sjf("exact")), engine, limits)
    Live(Ordered(Sjf()), engine, limits)


# --- who has least left ------------------------------------------------------------------------


def test_who_has_most_left_makes_room_and_keeps_its_tokens() -> None:
    # 0 has 2 of 6 tokens at 2.0, so 4 left; 1, which came at 1.5, has 2: it runs until 4.0, then 0 goes on.
    make = load((0.0, 4, 6), (1.5, 4, 2))
    assert ended(Srpt("exact"), make) == [8.0, 4.0]
    assert ended(Sjf("exact"), make) == [6.0, 8.0]


def test_who_has_as_much_left_does_not_make_room() -> None:
    assert ended(Srpt("exact"), load((0.0, 4, 6), (1.5, 4, 4))) == [6.0, 10.0]


def test_a_preempted_prompt_is_recomputed_at_its_cost() -> None:
    # 1/4 + 1/16 per prompt token: 4 + 2 tokens again cost 3/8 beside the base.
    cost = Linear(base=2**-2, prefill=2**-4)
    make = load((0.0, 4, 6), (0.6, 4, 2))
    # 0: prefill until 0.5, a decode until 0.75.  1: until 1.25 and 1.5.  0: 4 + 2 tokens until 2.125, and
    # three decodes.
    requests = served(Ordered(Srpt("exact"), SYNC), make, cost, ONE_SEAT)
    assert finished(requests) == [2.875, 1.5]
    assert [r.preemptions for r in requests] == [1, 0]


@pytest.mark.parametrize(
    "within", [Orca(1), Dynamic(1), *(PEERS[name].KIND() for name in PEERS if name != "ordered")]
)
def test_a_policy_that_preempts_nobody_takes_back_who_was_preempted(within: Any) -> None:
    limits = Limits(max_num_seqs=1, max_num_batched_tokens=4096, block_size=4, enable_prefix_caching=False)
    make = load((0.0, 4, 60), (1.5, 4, 2), (1.5, 4, 3))
    try:
        done = served(Ordered(Srpt("exact"), within), make, SECOND, limits)
    except InputError as error:
        assert "has an order of its own" in str(error)
        return
    assert max(done, key=lambda r: r.finished).id == 0
    assert sum(r.preemptions for r in done) == 1


def test_nobody_is_preempted_in_a_batch_that_leaves_together() -> None:
    with pytest.raises(InputError, match="srpt: preempts nobody in a batch whose requests leave together"):
        Ordered(Srpt(), Static(2)).begin(Batch(Limits()))


# --- deadlines -------------------------------------------------------------------------------


def test_the_earliest_deadline_is_met_that_first_come_misses() -> None:
    # Class 0 has 3 s to its first token, class 1 has 10 s.  Each runs for 2 s, alone.
    due = (3.0, 10.0)
    slow = {"output": 2, "priority": 1}
    make = requests(slow, slow, {"arrival": 0.5, "output": 2, "priority": 0})

    def late(order: Any) -> list[int]:
        done = served(Ordered(order, SYNC), make, SECOND, ONE_SEAT)
        return [r.id for r in done if r.first_token > r.arrival + due[r.priority]]

    assert ended(Edf(due), make) == [2.0, 6.0, 4.0]
    assert (late(Fcfs()), late(Edf(due))) == ([2], [])


def test_a_deadline_moves_with_the_arrival() -> None:
    # Urgent ones that keep coming do not starve the other: at 4.0 its deadline, 4.25, is the next.
    rows = [{"output": 2, "priority": 0}, {"arrival": 0.25, "output": 2, "priority": 1}]
    rows += [{"arrival": 0.5 * k, "output": 2, "priority": 0} for k in range(1, 9)]
    rows.sort(key=lambda row: row.get("arrival", 0.0))
    slow = next(i for i, row in enumerate(rows) if row["priority"] == 1)
    assert ended(Edf((3.0, 4.0)), requests(*rows))[slow] == 8.0
    assert ended(Priority(), requests(*rows))[slow] == 20.0


def test_one_time_for_all_is_first_come() -> None:
    make = requests(*({"output": 2, "priority": k % 3} for k in range(6)))
    assert ended(Edf(0.5), make) == ended(Fcfs(), make) == [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]


def test_a_priority_without_a_time_is_an_error() -> None:
    with pytest.raises(PolicyError, match="request 0 has priority 2, but ttft has times for 0 to 1"):
        ended(Edf((0.5, 1.0)), requests({"output": 1, "priority": 2}))


# --- longest prefix ----------------------------------------------------------------------------


def with_prefix(id: int, arrival: float, keys: list[int]) -> Request:
    return Request(id, arrival, 13, 1, prefix=array("q", keys))


def test_the_longest_cached_prefix_is_first() -> None:
    # 0 leaves three blocks; 3 finds all of them, 2 two, 1 none, and 4, which came last, as many as 2.
    limits = Limits(max_num_seqs=1, block_size=4, num_kv_blocks=64)

    def make() -> list[Request]:
        rows = [[1, 2, 3], [9, 8, 7], [1, 2, 4], [1, 2, 3], [1, 2, 6]]
        return [with_prefix(i, 0.25 if i else 0.0, keys) for i, keys in enumerate(rows)]

    assert ended(Lpm(), make, limits) == [1.0, 5.0, 3.0, 2.0, 4.0]
    assert ended(Lpm(most=3), make, limits) == [1.0, 2.0, 4.0, 3.0, 5.0]  # four wait at first: first come
    assert ended(Fcfs(), make, limits) == [1.0, 2.0, 3.0, 4.0, 5.0]


# --- any policy ------------------------------------------------------------------------------------


def test_static_and_dynamic_batches_are_filled_in_the_order() -> None:
    make = load((0.0, 4, 4), (0.0, 4, 1), (0.0, 4, 2), (0.0, 4, 1))
    shortest = Sjf("exact")
    assert finished(served(Ordered(shortest, Static(2)), make, SECOND)) == [5.0, 1.0, 5.0, 1.0]
    assert finished(served(Ordered(shortest, Dynamic(2, 0.0)), make, SECOND)) == [5.0, 1.0, 3.0, 1.0]
    assert finished(served(Ordered(shortest, Orca(2)), make, SECOND)) == [5.0, 1.0, 3.0, 1.0]


def test_a_window_is_that_of_the_oldest_whoever_is_first() -> None:
    # 1, which is shorter, comes at 0.75; the window of 0 ends at 1.0.
    make = load((0.0, 4, 4), (0.75, 4, 1))
    assert finished(served(Ordered(Sjf("exact"), Dynamic(8, 1.0)), make, SECOND)) == [5.0, 2.0]


def test_a_policy_with_an_order_of_its_own_is_refused() -> None:
    with pytest.raises(InputError, match=r"Vllm\(.*policy='priority'.*\) has an order of its own; leave one"):
        Ordered(Sjf(), Vllm(policy="priority")).begin(Batch(Limits()))


def test_a_function_may_stand_within() -> None:
    def alone(b: Any) -> None:
        if b.edits == 0 and not b.running and b.num_waiting > 0:
            b.admit(b.waiting.first(), b.waiting.first().unfilled)

    assert finished(served(Ordered(Sjf(), alone), load((0.0, 4, 3), (0.0, 4, 1)), SECOND)) == [4.0, 1.0]


def test_first_come_within_vllm_is_vllm() -> None:
    make = load(*[(0.25 * k, 4, 1 + k % 3) for k in range(9)])
    assert finished(served(Ordered(), make)) == finished(served(Vllm(), make))


def test_texts_and_copies_of_orders() -> None:
    text = "ordered(order=sjf(sigma=0.5), policy=vllm(max_num_seqs=64))"
    assert policy(text) == Ordered(Sjf(0.5), Vllm(max_num_seqs=64))
    assert policy("ordered(vtc)") == Ordered(Vtc())
    assert policy("ordered(edf([0.5, 2]), orca)") == Ordered(Edf((0.5, 2)), Orca())
    assert policy("ordered(sjf(exact))") == Ordered(Sjf("exact"))
    assert pickle.loads(pickle.dumps(policy(text))) == policy(text)


BAD: dict[str, str] = {
    "sjf(sigma=-1)": "sjf: sigma is -1, but must be a number from 0 to 10",
    "sjf(sigma=often)": "sjf: sigma is 'often', but must be a number",
    "sjf(seed=-1)": "sjf: seed is -1, but must be a whole number of at least 0",
    "srpt(sigma=true)": "srpt: sigma is True",
    "sjf(predict=3)": "sjf: predict is 3, but must be a function of a request",
    "lpm(most=0)": "lpm: most is 0",
    "vtc(output_weight=-2)": "vtc: output_weight is -2",
    "vtc(prompt_weight=x)": "vtc: prompt_weight is 'x'",
    "edf(ttft=0)": "edf: ttft is 0, but must be seconds over 0, or a list of them",
    "edf(ttft=[])": "edf: ttft is ()",
    "edf(ttft=[1, soon])": "edf",
    "sjff": "unknown order 'sjff'; did you mean 'sjf'?",
    "sjf(0.5, 1, none, 3)": "order 'sjf' takes at most 3 values, but 4 are given",
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_order_says_what_is_wrong(text: str) -> None:
    with pytest.raises(InputError) as caught:
        policy(f"ordered(order={text})")
    assert BAD[text] in str(caught.value)


def test_sigma_and_a_predictor_are_not_given_together() -> None:
    with pytest.raises(InputError, match="sigma and predict are both given"):
        Sjf(0.5, predict=lambda r: 1.0)


# --- predictors in files ---------------------------------------------------------------------------

PREDICTOR = '''
def predict(request):
    """Long prompts have short answers."""
    return 1000 / request.prompt
'''


def test_a_file_with_a_predictor_is_vllm_with_the_shortest_first(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(PREDICTOR)
    found = load_policy(file)
    assert isinstance(found, Ordered) and isinstance(found.order, Sjf) and found.policy is None
    make = requests({"prompt": 1, "output": 1}, {"prompt": 9, "output": 1}, {"prompt": 3, "output": 1})
    limits = Limits(max_num_seqs=1)
    assert finished(served(found, make, SECOND, limits)) == [3.0, 1.0, 2.0]


@pytest.mark.parametrize("text", ["predict = 3", "class predict: pass"])
def test_a_file_whose_predictor_is_none_says_so(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(InputError, match="make it a function predict"):
        load_policy(file)


# --- the oracle boundary ---------------------------------------------------------------------------


def test_no_policy_reads_how_long_an_output_will_be() -> None:
    files = sorted((Path(batchwright.__file__).parent / "policies").glob("*.py"))
    assert len(files) > 10
    assert [file.name for file in files if "true_output" in file.read_text(encoding="utf-8")] == []
