"""The policies as value objects, and their text form."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from math import inf, nan
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import batchwright as bw
from batchwright.batch import Batch
from batchwright.cost import Constant, Hosted, Linear, Roofline
from batchwright.errors import BatchwrightError, InputError, LimitError
from batchwright.limits import Limits
from batchwright.policies import POLICIES, Dynamic, Orca, Static, Vllm, policies, policy
from batchwright.policies.vllm import FLAGS
from peers import PEERS
from strategies import for_every_seed

KINDS = (Static, Dynamic, Orca, Vllm)
ALL_KINDS = (*KINDS, *(peer.KIND for peer in PEERS.values()))


def random_static(random: Random) -> Static:
    return Static(random.randint(1, 999), random.random() < 0.5, random.random() < 0.5)


def random_dynamic(random: Random) -> Dynamic:
    most = random.randint(1, 99)
    sizes = tuple(random.randint(1, most) for _ in range(random.randint(0, 3)))
    return Dynamic(most, random.choice([0, 0.25, 1e-7, random.random()]), sizes)


def random_orca(random: Random) -> Orca:
    return Orca(random.choice([None, 1, 64]))


def random_vllm(random: Random) -> Vllm:
    values: dict[str, Any] = {
        "max_num_seqs": random.choice([None, 1, 64]),
        "max_num_batched_tokens": random.choice([None, 128, 8192]),
        "max_num_scheduled_tokens": random.choice([None, 100]),
        "max_num_active_seqs": random.choice([None, 32]),
        "enable_chunked_prefill": random.random() < 0.5,
        "long_prefill_token_threshold": random.choice([0, 7]),
        "long_prefill_token_threshold_adaptive": random.random() < 0.5,
        "scheduler_reserve_full_isl": random.random() < 0.5,
        "watermark": random.choice([0.0, 0.01, 1.0]),
        "policy": random.choice(["fcfs", "priority"]),
        "async_scheduling": random.random() < 0.5,
        "max_num_partial_prefills": random.choice([1, 2]),
        "max_long_partial_prefills": random.choice([1, 2]),
    }
    version = random.choice(list(FLAGS))
    chosen = [name for name in FLAGS[version] if name in values and random.random() < 0.5]
    speculation = random_speculation(random) if random.random() < 0.3 else {}
    return Vllm(version=version, **{name: values[name] for name in chosen}, **speculation)


def random_speculation(random: Random) -> dict[str, Any]:
    values: dict[str, Any] = {
        "num_speculative_tokens": random.choice([1, 4]),
        "acceptance": random.choice([0.5, 0.7]),
        "acceptance_spread": random.choice([0.0, 0.1]),
        "draft": random.choice([0.0, 0.05, 1]),
        "acceptance_seed": random.choice([0, 7]),
    }
    return values


MAKERS: tuple[Callable[[Random], Any], ...] = (
    random_static, random_dynamic, random_orca, random_vllm, *(peer.settings for peer in PEERS.values())
)  # fmt: skip


def random_policy(random: Random) -> Any:
    return random.choice(MAKERS)(random)


def set_values(config: Any) -> dict[str, Any]:
    """The fields that are not what they are by default."""
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    return {field.name: values[field.name] for field in fields(config) if values[field.name] != field.default}


def text_of(config: Any, random: Random) -> str:
    """One of the ways to write `config`."""
    name = next(name for name, kind in POLICIES.items() if kind is type(config))
    values = set_values(config)
    name = random.choice([name, name.upper()])
    version = values.pop("version", None)
    items = [f"{_flag(key, random)}={_word(value, random)}" for key, value in values.items()]
    random.shuffle(items)
    head = name + (f"@{version}" if version else "")
    return head if not items else f"{head}({', '.join(items)})"


def _flag(name: str, random: Random) -> str:
    return random.choice([name, name.replace("_", "-")])


def _word(value: Any, random: Random) -> str:
    if isinstance(value, str):
        return random.choice([value, repr(value)])
    if isinstance(value, tuple):
        return random.choice([repr(value), repr(list(value))])
    return random.choice([repr(value), repr(value).lower()])


# --- text ---------------------------------------------------------------------------


@for_every_seed(300)
def test_any_policy_can_be_written_and_read(seed: int) -> None:
    random = Random(seed)
    config = random_policy(random)
    text = text_of(config, random)
    assert policy(text) == config
    assert policy(f"  {text} ") == config
    assert policy(text.replace("(", " (", 1)) == config


@for_every_seed(200)
def test_what_is_printed_can_be_read(seed: int) -> None:
    config = random_policy(Random(seed))
    assert policy(repr(config)) == config
    assert repr(policy(repr(config))) == repr(config)


@for_every_seed(200)
def test_a_list_of_policies_is_split_between_brackets_only(seed: int) -> None:
    random = Random(seed)
    texts = {text_of(config, random): config for config in (random_policy(random) for _ in range(5))}
    joined = random.choice([",", ", ", " , "]).join(texts)
    found = policies(joined)
    assert found == texts
    assert list(found) == list(texts)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_what_a_policy_says_of_itself_is_no_flag(kind: Any) -> None:
    """Nor in the compiled core, where a flag more would take the first value that is given without a name."""
    assert kind.about.engine
    assert "about" not in [flag.name for flag in fields(kind)]


def test_values_may_be_given_in_order() -> None:
    assert policy("static(8, false, streamed=true)") == Static(8, False, True)
    assert policy("dynamic(8, 0.5, [2, 4])") == Dynamic(8, 0.5, (2, 4))
    assert policy("orca(none)") == policy("orca()") == policy("orca") == Orca()


def test_names_and_versions_of_vllm() -> None:
    assert policy("continuous") == policy("vllm") == policy("vLLM") == policy("vllm@0.32") == Vllm()
    assert policy("vllm@0.19") == Vllm(version="0.19") != Vllm()
    assert policy("vllm(version=0.19)") == policy("vllm(version='0.19')") == Vllm(version="0.19")


WRONG = {
    "": "policy '' is not of the form name, name@version or name(flag=value)",
    "static(": "is not of the form",
    "static)8(": "is not of the form",
    "static@": "is not of the form",
    "vlm": "unknown policy 'vlm'; did you mean 'vllm'?",
    "statics(3)": "unknown policy 'statics'; did you mean 'static'?",
    "qqq": f"unknown policy 'qqq'; known: {', '.join(sorted(POLICIES))}",
    "static@2": "policy 'static' has no versions; write static",
    "orca@1(3)": "policy 'orca' has no versions; write orca(3)",
    "static(batchsize=3)": "policy 'static' has no flag 'batchsize'; did you mean 'batch_size'?",
    "orca(zzz=3)": "policy 'orca' has no flag 'zzz'; known: max_batch_size",
    "static(1, true, true, 4)": "policy 'static' takes at most 3 values, but 4 are given",
    "static(3, batch_size=3)": "policy 'static': batch_size is given twice",
    "static(3, batch-size=3)": "policy 'static': batch_size is given twice",
    "static(batch_size=3, batch_size=4)": "policy 'static'",
    "static(batch_size=)": "policy 'static': '(batch_size=)' cannot be read",
    "static(batch_size=f(3))": "policy 'static': 'f(3)' is not a number, word or list",
    "static(batch_size=1+1)": "policy 'static': '1 + 1' is not a number, word or list",
    "static(**x)": "policy 'static' has no flag '**'",
    "static(*x)": "policy 'static'",
    "static(batch_size={[]: 1})": "policy 'static'",
    "static(batch_size={[]})": "policy 'static'",
    "static(\0)": "policy",
    "vllm@0.9": "vllm: version '0.9' is not known; known: 0.19, 0.32",
    "vllm@0.19(watermark=0.1)": "vllm@0.19 has no flag watermark; leave it out",
    "vllm@0.19(version='0.32')": "policy 'vllm': version is given twice",
    "vllm(policy=priorty)": "vllm: policy 'priorty' is not known; known: fcfs, priority",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_text_that_is_wrong_says_what_is(text: str) -> None:
    with pytest.raises(InputError) as caught:
        policy(text)
    assert WRONG[text] in str(caught.value)
    assert "\n" not in str(caught.value)


PIECES = st.sampled_from(
    ["static", "vllm", "dynamic", "@", "0.19", "(", ")", "[", "]", ",", "=", "batch_size", "window",
     "version", "preferred_sizes", "8", "0.5", "-", "1e999", "true", "none", "'", '"', "*", "{", "}", ":",
     " ", "\n", "lambda"]
)  # fmt: skip
READERS: tuple[Callable[[str], Any], ...] = (
    policy,
    policies,
    lambda text: policy(f"static({text})"),
    lambda text: policy(f"dynamic(8,{text})"),
)


@settings(max_examples=600, derandomize=True, database=None, deadline=None)
@given(st.one_of(st.lists(PIECES, max_size=12).map("".join), st.text(max_size=20)))
def test_no_text_raises_anything_but_our_own_errors(text: str) -> None:
    for read in READERS:
        try:
            read(text)
        except BatchwrightError as error:
            assert len(str(error)) > 20


@pytest.mark.parametrize(("text", "why"), [("", "no policy is named"), (" , ", "no policy is named")])
def test_a_list_names_somebody(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        policies(text)


def test_a_list_names_nobody_twice() -> None:
    with pytest.raises(InputError, match=r"policy 'orca\(3\)' is listed twice; leave one out"):
        policies("orca(3), orca,orca(3)")
    assert list(policies("orca(3), orca,orca(4)")) == ["orca(3)", "orca", "orca(4)"]


# --- parameters -------------------------------------------------------------------------

COUNTS = (0, -1, 1.0, 2.5, True, "8", None, nan)
BOOLS = (0, 1, None, "true")
BAD: dict[tuple[type, str], tuple[Any, ...]] = {
    (Static, "batch_size"): tuple(value for value in COUNTS if value is not None),
    (Static, "padded"): BOOLS,
    (Static, "streamed"): BOOLS,
    (Dynamic, "max_batch_size"): tuple(value for value in COUNTS if value is not None),
    (Dynamic, "window"): (-0.1, nan, inf, 1e7, "1", None, True, 10**400),
    (Dynamic, "preferred_sizes"): (4, "48", None, (0,), (4, -1), (2.0,), (33,), (True,)),
    (Orca, "max_batch_size"): tuple(value for value in COUNTS if value is not None),
    (Vllm, "version"): ("1", 0.32, None),
    (Vllm, "long_prefill_token_threshold"): (-1, 0.0, True, None),
    (Vllm, "watermark"): (-0.1, 1.1, nan, "0", True, None),
    (Vllm, "policy"): ("lifo", "", None, 1),
    **{
        (Vllm, name): tuple(value for value in COUNTS if value is not None)
        for name in FLAGS["0.32"]
        if name.startswith("max_")
    },
    (Vllm, "num_speculative_tokens"): (-1, 1.0, True, "8", None, nan),
    (Vllm, "acceptance"): (0.7, -1, True, "x"),  # without num_speculative_tokens
    (Vllm, "acceptance_spread"): (0.1, None),
    (Vllm, "draft"): (0.1, "x", None),
    (Vllm, "acceptance_seed"): (1, -1, None),
    **{
        (Vllm, name): BOOLS
        for name in ("enable_chunked_prefill", "long_prefill_token_threshold_adaptive",
                     "scheduler_reserve_full_isl", "async_scheduling")
    },
    **{(peer.KIND, flag): values for peer in PEERS.values() for flag, values in peer.BAD.items()},
}  # fmt: skip
CASES = [(kind, name, value) for (kind, name), values in BAD.items() for value in values]


@pytest.mark.parametrize(("kind", "name", "value"), CASES, ids=lambda value: str(value)[:20])
def test_a_bad_value_is_refused_by_name(kind: type, name: str, value: Any) -> None:
    with pytest.raises(InputError) as caught:
        kind(**{name: value})
    message = str(caught.value)
    name_of = next(policy for policy, known in POLICIES.items() if known is kind)
    assert message.startswith(f"{name_of}: ") or f"{name_of}@" in message
    assert name.removesuffix("s").replace("_", " ") in message.replace("_", " ")


@pytest.mark.parametrize("name", ["max_num_partial_prefills", "max_long_partial_prefills"])
@pytest.mark.parametrize("value", [value for value in COUNTS if value is not None])
def test_a_bad_value_of_a_flag_of_0_19_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=name):
        Vllm(version="0.19", **{name: value})


def test_every_parameter_is_validated() -> None:
    checked = {name for kind, name in BAD if kind is Vllm} | {
        "max_num_partial_prefills", "max_long_partial_prefills",
    }  # fmt: skip
    assert checked == {field.name for field in fields(Vllm)}
    for kind in (Static, Dynamic, Orca, *(peer.KIND for peer in PEERS.values())):
        assert {name for k, name in BAD if k is kind} == {field.name for field in fields(kind)}


@pytest.mark.parametrize("version", FLAGS)
def test_a_version_knows_its_own_flags_only(version: str) -> None:
    values = {
        "watermark": 0.1, "long_prefill_token_threshold_adaptive": True, "max_num_active_seqs": 3,
        "max_num_partial_prefills": 2, "max_long_partial_prefills": 2, "max_num_seqs": 8,
        "async_scheduling": False, "policy": "priority", "scheduler_reserve_full_isl": False,
    }  # fmt: skip
    for name, value in values.items():
        if name in FLAGS[version]:
            assert getattr(Vllm(version=version, **{name: value}), name) == value
        else:
            with pytest.raises(InputError, match=f"vllm@{version} has no flag {name}; leave it out"):
                Vllm(version=version, **{name: value})


@pytest.mark.parametrize("config", [Static(9), Dynamic(9), Orca(9)])
def test_a_batch_must_fit_the_seats_of_the_server(config: Any) -> None:
    config.begin(Batch(Limits(max_num_seqs=9)))
    with pytest.raises(LimitError, match=r"size 9 is over max_num_seqs 8"):
        config.begin(Batch(Limits(max_num_seqs=8)))


def test_vllm_does_not_start_with_more_seats_than_tokens() -> None:
    with pytest.raises(LimitError, match="vllm: max_num_seqs 300 is over max_num_batched_tokens 256"):
        Vllm(max_num_seqs=300).begin(Batch(Limits(max_num_batched_tokens=256)))
    Vllm(max_num_seqs=300, max_num_batched_tokens=300).begin(Batch(Limits(max_num_batched_tokens=256)))


def test_without_chunks_a_step_must_hold_the_longest_prompt() -> None:
    whole = Vllm(enable_chunked_prefill=False)
    whole.begin(Batch(Limits(max_num_batched_tokens=512, max_model_len=512)))
    for longest in (513, None):
        with pytest.raises(LimitError, match="without chunked prefill max_num_batched_tokens 512 must be at"):
            whole.begin(Batch(Limits(max_num_batched_tokens=512, max_model_len=longest)))


# --- value objects ------------------------------------------------------------------------


@for_every_seed(100)
def test_a_policy_is_its_parameters(seed: int) -> None:
    config, again, other = (random_policy(Random(number)) for number in (seed, seed, seed + 1))
    assert config == again and config is not again
    assert hash(config) == hash(again)
    same = type(config) is type(other) and set_values(config) == set_values(other)
    assert (config == other) == same


def test_sizes_may_come_in_a_list() -> None:
    assert Dynamic(preferred_sizes=[4, 8]) == Dynamic(preferred_sizes=(4, 8))  # type: ignore[arg-type]
    assert hash(Dynamic(preferred_sizes=[4, 8])) == hash(Dynamic(preferred_sizes=(4, 8)))  # type: ignore[arg-type]


@pytest.mark.parametrize("config", [Static(), Dynamic(), Orca(), Vllm(), Limits()])
def test_a_configuration_is_frozen(config: Any) -> None:
    name = fields(config)[0].name
    with pytest.raises((FrozenInstanceError, AttributeError)):
        setattr(config, name, 1)


@for_every_seed(100)
def test_a_policy_pickles(seed: int) -> None:
    config = random_policy(Random(seed))
    again = pickle.loads(pickle.dumps(config))
    assert (again, repr(again)) == (config, repr(config))


@pytest.mark.parametrize(
    "config",
    [
        Limits(),
        Limits(max_num_seqs=3, max_model_len=99, num_kv_blocks=100, enable_prefix_caching=False),
        Constant(0.5),
        Linear(0.1, 0.2, 0.3, 0.4, 0.5),
        Roofline(gpu="H100-SXM", model="llama-3.1-8b", mfu=0.5),
        Hosted(Linear(0.1), 1e-3, 1e-4),
        Hosted(Roofline(gpu="H100-SXM", model="llama-3.1-8b")),
    ],
    ids=lambda config: type(config).__name__,
)
def test_limits_and_costs_pickle(config: Any) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(config, protocol))
        assert (again, repr(again)) == (config, repr(config))


def test_a_policy_serves_many_runs_at_once() -> None:
    config = Dynamic(2, window=0.0)
    runs = [bw.Simulator(config, Constant(1.0)) for _ in range(2)]
    loads = [[bw.Request(i, 0.5 * i, 4, 3) for i in range(5)] for _ in runs]
    for run, load in zip(runs, loads, strict=True):
        run.submit(load[0])
    for run, load in zip(runs, loads, strict=True):
        run.run(load[1:])
    assert [r.finished for r in loads[0]] == [r.finished for r in loads[1]] == [3.0, 6.0, 6.0, 9.0, 9.0]


def test_the_short_names_are_the_policies() -> None:
    assert (bw.static, bw.dynamic, bw.orca, bw.vllm, bw.continuous) == (*KINDS, Vllm)
    assert bw.policy("static(8)") == bw.static(8)
    assert set(POLICIES.values()) == set(ALL_KINDS)
    assert set(POLICIES) == {"static", "dynamic", "orca", "vllm", "continuous", *PEERS}
