"""Loads that are made: their laws, their texts, and that a seed is all their chance."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from collections.abc import Callable
from inspect import signature
from itertools import pairwise
from math import exp, isinf, isnan, pi, sin, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchwright import Constant, Limits, Simulator
from batchwright.errors import InputError
from batchwright.policies import Vllm
from batchwright.workload import (
    Workload,
    article,
    burst,
    chat,
    closed,
    constant,
    diurnal,
    empirical,
    exponential,
    gamma,
    geometric,
    lognormal,
    onoff,
    poisson,
    sessions,
    uniform,
    weibull,
)
from batchwright.workload.lengths import shape_of
from batchwright.workload.load_text import LAWS, LOADS
from strategies import for_every_seed

ROOT = Path(__file__).resolve().parent.parent
MANY = 100_000
TEXTS = (
    "chat(n=50)",
    "article",
    "poisson(rate=4, n=50, prompt=uniform(512, 4096), output=lognormal(mean=288, sigma=0.5))",
    "gamma(rate=4, cv=3, n=50)",
    "weibull(rate=4, cv=2, n=50, prompt=100)",
    "weibull(rate=4, shape=0.5, n=50, output=geometric(100, most=300))",
    "constant(rate=4, n=50)",
    "onoff(rate_on=10, rate_off=1, on=5, off=exponential(20), n=50)",
    "diurnal(rate=4, peak=1.8, period=60, n=50)",
    "burst(50)",
    "closed(clients=8, think=exponential(2, most=5), n=50, shared_prefix=512, prefixes=3)",
    "sessions(rate=1, turns=geometric(4), think=uniform(1, 9), shared_prefix=48, prefixes=2, n=50)",
    "mix(chat(n=20), closed(clients=4, n=10), poisson(rate=1, n=20, shared_prefix=48))",
)


def assert_mean(values: Any, expected: float, cv: float | None = None) -> None:
    """Within four standard errors; independent values."""
    spread = float(np.std(values)) if cv is None else cv * expected
    assert abs(np.mean(values) - expected) < 4 * spread / sqrt(len(values)) + 1e-9 * expected


# --- gaps -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("load", "rate", "cv"),
    [
        (poisson(MANY, 40.0, 1, 1, seed=3), 40.0, 1.0),
        (gamma(rate=0.5, cv=3.0, n=MANY), 0.5, 3.0),
        (gamma(rate=7.0, cv=0.3, n=MANY), 7.0, 0.3),
        (weibull(rate=7.0, cv=2.0, n=MANY), 7.0, 2.0),
        (weibull(rate=7.0, cv=0.25, n=MANY), 7.0, 0.25),
        (weibull(rate=2.0, shape=1.0, n=MANY), 2.0, 1.0),
        (weibull(rate=2.0, shape=0.5, n=MANY), 2.0, sqrt(5)),
    ],
    ids=lambda value: value.name if isinstance(value, Workload) else None,
)
def test_gaps_have_the_mean_and_the_cv_that_were_asked_for(load: Workload, rate: float, cv: float) -> None:
    gaps = np.diff(load.arrival)
    assert_mean(gaps, 1 / rate, cv)
    assert_mean(gaps**2, (1 + cv**2) / rate**2)
    assert load.gap_cv == pytest.approx(cv, rel=0.05)


def test_constant_gaps_do_not_drift() -> None:
    load = constant(rate=3.0, n=10_000)
    assert np.abs(load.arrival - np.arange(10_000) / 3).max() <= 0.5e-9 + 1e-12


@pytest.mark.parametrize("off", [20.0, uniform(10, 30)], ids=["fixed", "drawn"])
def test_onoff_has_the_mean_rate_of_its_phases(off: Any) -> None:
    load = onoff(rate_on=50.0, rate_off=2.0, on=4.0, off=off, n=MANY)
    assert load.rate == pytest.approx((50 * 4 + 2 * 20) / 24, rel=0.03)
    assert load.gap_cv > 2


def test_onoff_sends_nothing_while_it_is_off_and_poisson_while_it_is_on() -> None:
    load = onoff(rate_on=5.0, on=10.0, off=100.0, n=20_000)
    phase = load.arrival % 110.0
    assert phase.max() < 10.0
    counts = np.bincount((load.arrival // 110.0).astype(int))[:-1]
    assert_mean(counts, 50.0)
    assert counts.var() == pytest.approx(50.0, rel=0.35)  # 4 standard errors of 400 variances
    assert_mean(phase, 5.0)


def test_diurnal_swings_from_its_low_to_its_peak() -> None:
    load = diurnal(rate=20.0, peak=1.8, period=100.0, n=MANY)
    assert load.rate == pytest.approx(20.0, rel=0.01)
    days = int(load.span // 100)
    hours = np.floor(load.arrival[load.arrival < days * 100] % 100 / 10).astype(int)
    for hour, count in enumerate(np.bincount(hours)):
        swing = 0.8 / (2 * pi) * (sin(2 * pi * (hour + 1) / 10) - sin(2 * pi * hour / 10)) * 10
        expected = days * 200 * (1 - swing)
        assert abs(count - expected) < 4 * sqrt(expected)


def test_loads_that_come_at_once_do() -> None:
    assert isinf(burst(20).rate) and isinf(article().rate)
    load = article()
    assert (len(load), load.prompt.min() >= 512, load.prompt.max() <= 4096) == (100, True, True)
    assert (load.output.min() >= 64, load.output.max() <= 512) == (True, True)


# --- lengths ------------------------------------------------------------------------------------


def drawn(law: Any) -> Any:
    return burst(MANY, prompt=law, output=1).prompt


def test_uniform_lengths_reach_both_ends_alike() -> None:
    tokens = drawn(uniform(3, 7))
    assert_mean(tokens, 5.0)
    for count in np.bincount(tokens)[3:]:
        assert abs(count - MANY / 5) < 4 * sqrt(MANY * 0.16)
    assert (tokens.min(), tokens.max()) == (3, 7)


@pytest.mark.parametrize("sigma", [0.3, 1.0])
def test_lognormal_lengths_have_their_mean_or_median_and_cv(sigma: float) -> None:
    tokens = drawn(lognormal(mean=500, sigma=sigma))
    assert_mean(tokens, 500.0)
    assert tokens.std() / tokens.mean() == pytest.approx(sqrt(exp(sigma**2) - 1), rel=0.05)
    assert np.median(drawn(lognormal(median=500, sigma=sigma))) == pytest.approx(500, rel=0.02)


def test_geometric_lengths_forget_their_age() -> None:
    tokens = drawn(geometric(20))
    assert_mean(tokens, 20.0)
    assert_mean(tokens == 1, 1 / 20)
    assert_mean(tokens[tokens > 30] - 30, 20.0)
    assert tokens.min() == 1


@pytest.mark.parametrize("law", [geometric(20, most=30), lognormal(mean=20, sigma=1, most=30)])
def test_what_is_over_most_is_cut_to_it(law: Any) -> None:
    tokens = drawn(law)
    assert tokens.max() == 30 and (tokens == 30).mean() > 0.05 and tokens.mean() < 20


def test_empirical_lengths_are_those_that_were_given() -> None:
    tokens = drawn(empirical([5, 5, 9, 100]))
    assert set(tokens.tolist()) == {5, 9, 100}
    assert_mean(tokens == 5, 0.5)


def test_lengths_of_a_load_are_drawn_in_pairs() -> None:
    source = Workload.from_columns([0, 0, 0], [10, 20, 30], [1, 2, 3])
    load = poisson(n=3000, rate=2.0, lengths=source)
    assert Counter(zip(load.prompt.tolist(), load.output.tolist(), strict=True)).keys() == {
        (10, 1), (20, 2), (30, 3),
    }  # fmt: skip
    assert_mean(load.prompt, 20.0)
    assert "prompts and outputs drawn in pairs from columns" in load.notes


def test_lengths_that_nobody_gave_are_those_of_chat_and_that_is_said() -> None:
    assert "prompt and output lengths are those of chat (none were given)" in burst(9).notes
    assert "output lengths are those of chat (none were given)" in burst(9, prompt=5).notes
    assert not any("chat" in note for note in burst(9, prompt=5, output=6).notes)


@for_every_seed(20)
def test_one_law_leaves_all_other_draws_as_they_are(seed: int) -> None:
    one = gamma(rate=3.0, cv=2.0, n=40, seed=seed, prompt=uniform(5, 900))
    other = gamma(rate=3.0, cv=2.0, n=40, seed=seed, prompt=geometric(77), shared_prefix=32)
    assert (one.arrival == other.arrival).all() and (one.output == other.output).all()
    faster = gamma(rate=6.0, cv=2.0, n=40, seed=seed, prompt=uniform(5, 900))
    assert (one.prompt == faster.prompt).all()
    assert np.corrcoef(np.diff(one.arrival), one.prompt[1:])[0, 1] < 0.7


# --- shared prefixes -----------------------------------------------------------------------------


def keys_of(load: Workload, block_size: int = 16) -> dict[int, list[int]]:
    """Prefix keys by id, those of followers too."""
    found: dict[int, list[int]] = {}
    line = list(load.requests(block_size))
    while line:
        r = line.pop()
        found[r.id] = list(r.prefix)
        line += r.then(r, 0.0) if r.then is not None else []
    return found


@pytest.mark.parametrize(("shared", "block_size"), [(512, 16), (512, 512), (1536, 64), (48, 16), (48, 4)])
def test_prompts_share_their_prefix_with_those_that_have_the_same_one_and_no_more(
    shared: int, block_size: int
) -> None:
    load = burst(60, prompt=uniform(1, 1500), output=1, shared_prefix=shared, prefixes=3)
    keys = keys_of(load, block_size)
    heads = Counter(tuple(found[: shared // block_size]) for found in keys.values())
    assert len(heads) == 3 and max(heads.values()) < 40
    tails = [key for found in keys.values() for key in found[shared // block_size :]]
    assert len(set(tails)) == len(tails)
    assert not set(tails) & {key for head in heads for key in head}
    assert all(len(keys[r.id]) == r.prompt // block_size for r in load.requests(block_size))
    assert load.prompt.min() > shared


# --- closed loops --------------------------------------------------------------------------------


def test_a_closed_loop_has_one_chain_a_client() -> None:
    load = closed(clients=3, n=10, think=2.5)
    assert load.client is not None and load.client.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
    assert load.arrival[:3].tolist() == [0.0] * 3 and np.isnan(load.arrival[3:]).all()
    assert [r.id for r in load.requests()] == [0, 1, 2]
    assert all(isnan(value) for value in (load.span, load.rate, load.gap_cv))
    assert "10 requests (3 all at once, 7 each after the end of another)" in load.describe()


def test_a_closed_load_is_served_with_its_think_times() -> None:
    load = closed(clients=3, n=12, think=exponential(4.0), prompt=10, output=uniform(1, 9))
    simulator = Simulator(Vllm(async_scheduling=False), Constant(0.5))
    simulator.run(load.requests())
    arrival = load.arrival_in(simulator.arrived)
    log = simulator.log
    finished = dict(zip(log.column("id"), log.seconds("finished"), strict=True))
    assert len(finished) == 12
    think = load.columns.think
    assert think is not None and think[3:].min() > 0
    for row in range(3, 12):
        assert arrival[row] == finished[row - 3] + think[row]


# --- sessions -------------------------------------------------------------------------------------


@for_every_seed(30)
def test_a_prompt_is_the_conversation_so_far_and_what_is_new(seed: int) -> None:
    new = burst(80, prompt=uniform(1, 400), output=uniform(1, 300), seed=seed)
    load = sessions(
        rate=2.0, turns=geometric(3), think=uniform(0, 9), n=80, seed=seed,
        prompt=uniform(1, 400), output=uniform(1, 300), shared_prefix=64, prefixes=2,
    )  # fmt: skip
    after, client = load.columns.after, load.client
    assert after is not None and client is not None
    assert (load.output == new.output).all()
    for row, before in enumerate(after.tolist()):
        history = 64 if before < 0 else int(load.prompt[before] + load.output[before])
        assert load.prompt[row] == history + new.prompt[row]
        assert before in (-1, row - 1)
        assert before < 0 or client[row] == client[before]
    assert (np.diff(load.arrival[after < 0]) >= 0).all()


@for_every_seed(30)
def test_turns_share_the_whole_conversation_and_sessions_the_system_prompt_alone(seed: int) -> None:
    load = sessions(rate=2.0, turns=3, think=1.0, n=30, seed=seed, shared_prefix=80, prefixes=2)
    keys = keys_of(load)
    for row in range(30):
        covered = int(load.prompt[row] + load.output[row])
        assert len(keys[row]) == covered // 16
        assert row % 3 == 2 or keys[row + 1][: covered // 16] == keys[row]
    ends = [keys[row] for row in range(2, 30, 3)]
    shared = {tuple(found[:5]) for found in ends}
    assert len({key for found in shared for key in found}) == 5 * len(shared) <= 10
    for one, other in pairwise(ends):
        assert not set(one[5:]) & set(other[5:])


def test_the_next_turn_finds_prompt_and_answer_in_the_cache() -> None:
    load = sessions(rate=0.01, turns=4, think=5.0, n=40, prompt=uniform(1, 400), output=uniform(2, 300))
    simulator = Simulator(Vllm(), Constant(0.01), Limits(num_kv_blocks=100_000))
    simulator.run(load.requests())
    cached = dict(zip(simulator.log.column("id"), simulator.log.column("cached"), strict=True))
    for row in range(40):
        before = int(load.prompt[row - 1] + load.output[row - 1]) - 1  # its last token has no KV
        assert cached[row] == (before // 16 * 16 if row % 4 else 0)


@for_every_seed(15)
def test_sessions_that_are_preempted_and_evicted_are_the_same_skipped_or_audited(
    seed: int,
) -> None:
    load = sessions(
        rate=3.0, turns=geometric(4), think=uniform(0, 2), n=60, seed=seed,
        prompt=uniform(1, 200), output=uniform(1, 120), shared_prefix=32, prefixes=2,
    )  # fmt: skip
    longest = int((load.prompt + load.output).max())
    limits = Limits(num_kv_blocks=-(-longest // 16) + 20, max_num_seqs=16, max_num_batched_tokens=512)
    runs = []
    for audit in (False, True):
        simulator = Simulator(Vllm(async_scheduling=seed % 2 == 0), Constant(0.02), limits, audit=audit)
        simulator.run(load.requests())
        simulator.batch.check()
        assert simulator.batch.blocks.free == limits.blocks
        log = simulator.log
        runs.append((simulator.arrived, log.column("cached").tolist(), log.seconds("finished").tolist()))
    assert runs[0] == runs[1] and len(runs[0][2]) == 60


def test_sessions_start_at_their_rate_and_have_their_turns() -> None:
    load = sessions(rate=3.0, turns=geometric(5), think=exponential(7.0), n=50_000, prompt=5, output=5)
    after = load.columns.after
    assert after is not None and load.columns.think is not None
    starts = load.arrival[after < 0]
    assert_mean(np.diff(starts), 1 / 3)
    assert len(load) / len(starts) == pytest.approx(5.0, rel=0.04)
    assert_mean(load.columns.think[after >= 0], 7.0)


# --- seeds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", TEXTS)
def test_a_seed_is_all_the_chance_there_is(text: str) -> None:
    load = Workload.open(text, seed=5)
    assert load == Workload.open(text, seed=5)
    assert load.made is not None
    again = pickle.loads(pickle.dumps(load))
    assert again == load
    for k in (1, 2):
        other = load.replicate(k)
        assert other == again.replicate(k) and other != load
        assert (other.name, len(other)) == (load.name, len(load))
        if not text.startswith("mix"):
            assert other == Workload.open(text, seed=5 + k)
    assert load.replicate(0) is load


@pytest.mark.parametrize("text", [text for text in TEXTS if "cons" not in text])
def test_repetitions_differ_in_more_than_a_shift(text: str) -> None:
    load = Workload.open(text)
    columns = [load.replicate(k).prompt.tolist() for k in range(4)]
    assert "prompt=100" in text or len({tuple(column) for column in columns}) == 4


def test_a_load_is_known_by_name_or_by_text() -> None:
    assert Workload.open("chat") == chat() and Workload.open("article") == article()
    assert Workload.open("chat", seed=9) == Workload.open("chat(seed=9)", seed=4) == chat(seed=9)
    text = "poisson( rate=4,n=9,\n prompt=uniform(5, 9), output=3)"
    load = Workload.open(text, max_tokens=7)
    assert load == poisson(9, 4.0, uniform(5, 9), 3).with_max_tokens(7)
    assert load.name == "poisson( rate=4,n=9, prompt=uniform(5, 9), output=3)"


def test_arguments_of_texts_are_those_of_the_functions() -> None:
    text = "weibull(rate=4, cv=2.5, n=30, prompt=lognormal(median=90, sigma=.5, most=100), shared_prefix=32)"
    law = lognormal(median=90, sigma=0.5, most=100)
    assert Workload.open(text) == weibull(rate=4, cv=2.5, n=30, prompt=law, shared_prefix=32)
    text = "onoff(rate_on=9, on=exponential(mean=3), off=exponential(4), n=30)"
    assert Workload.open(text) == onoff(rate_on=9, on=exponential(3), off=exponential(4), n=30)


def test_a_text_may_draw_the_lengths_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "small.csv"
    file.write_text("arrival,prompt,output\n0,10,1\n1,20,2\n")
    load = Workload.open(f"poisson(rate=1, n=99, lengths='{file}')")
    assert set(zip(load.prompt.tolist(), load.output.tolist(), strict=True)) == {(10, 1), (20, 2)}
    load = Workload.open(f"burst(99, prompt=empirical('{file}'), output=empirical('{file}'))")
    pairs = set(zip(load.prompt.tolist(), load.output.tolist(), strict=True))
    assert pairs == {(10, 1), (20, 2), (10, 2), (20, 1)}
    assert load.replicate(1) != load


def test_the_loads_of_a_mix_keep_their_limits_unless_one_is_given() -> None:
    text = "mix(burst(3, prompt=5, output=7), burst(3, prompt=5, output=9))"
    assert Counter(Workload.open(text).max_tokens.tolist()) == {7: 3, 9: 3}
    assert set(Workload.open(text, max_tokens=8).max_tokens.tolist()) == {8}


def test_the_loads_of_a_mix_do_not_move_together() -> None:
    load = Workload.open("mix(poisson(rate=1, n=500), poisson(rate=2, n=500))")
    one, other = (load.arrival[load.client == client] for client in (0, 1))
    assert abs(np.corrcoef(np.diff(one), np.diff(other))[0, 1]) < 0.2
    assert any("has seed" in note for note in load.notes)
    same = Workload.open("mix(poisson(rate=1, n=5, seed=3), poisson(rate=1, n=5, seed=3))")
    assert (same.arrival[same.client == 0] == same.arrival[same.client == 1]).all()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("posson(rate=1)", "names the unknown load 'posson'; did you mean 'poisson'?"),
        ("poisson(rate=1, promt=5)", "gives poisson the unknown argument 'promt'; did you mean 'prompt'?"),
        (
            "poisson(4)",
            "gives poisson 4 without a name; its arguments are n=, rate=, prompt=, output=, seed=",
        ),
        ("gamma(rate=4)", "lacks cv of gamma"),
        ("poisson(rate=1, prompt=uniform(1))", "lacks high of uniform"),
        ("poisson(rate=1, prompt=lognormal(9, sigma=1))", "gives lognormal arguments without a name"),
        ("poisson(rate=1, prompt=zipf(2))", "names the unknown law 'zipf' as prompt; known:"),
        ("poisson(rate=1, prompt=uniform(1, 2, low=3))", "gives low of uniform twice"),
        ("poisson(rate=1, **x)", "unknown argument '**'"),
        ("poisson(rate=True)", "needs a number or a law as rate, not True"),
        ("poisson(rate=chat)", "needs a number or a law as rate, not chat"),
        ("poisson(rate=1, lengths=5)", "needs a quoted file as lengths, not 5"),
        ("poisson(rate=1, turns=empirical('x'))", "unknown argument 'turns'"),
        ("sessions(rate=1, think=1, turns=empirical('x'))", "needs empirical('file') as prompt or output"),
        ("mix()", "the number of loads of a mix is 0"),
        ("mix(5)", "names no load with '5'"),
        ("mix(chat, seed=-1)", "seed of a mix is -1"),
        ("poisson(rate=1", None),
        ("poisson(rate=1)(2)", "names the unknown load 'poisson(rate=1)'"),
        ("poisson(rate=0)", "rate is 0; give requests per second over 0"),
        ("poisson(rate=uniform(1, 2))", "rate is Uniform(low=1, high=2)"),
        ("poisson(rate=1, n=1e3)", "n is 1000.0; give a whole number"),
        ("poisson(rate=1, prompt=1.5)", "prompt is 1.5; give a whole number of 1 to"),
        ("poisson(rate=1, prompt=exponential(5))", "a law of seconds; give a law of tokens"),
        ("closed(clients=2, think=geometric(5))", "a law of tokens; give a law of seconds"),
        ("closed(clients=20, n=10)", "n is 10, but there are 20 clients"),
        ("closed(clients=2, think=-1)", "think is -1; give a number of 0 to"),
        ("poisson(rate=1, shared_prefix=100)", "shared_prefix is 100; give a multiple of 16"),
        ("poisson(rate=1, prefixes=2)", "prefixes is 2, but shared_prefix is 0"),
        ("diurnal(rate=1, peak=3)", "peak is 3; give a number of 1 to 2"),
        ("weibull(rate=1)", "weibull takes either cv or shape"),
        ("gamma(rate=1, cv=0)", "cv is 0; give a number of 0.01 to 100"),
        ("onoff(rate_on=1, on=0, off=1)", "on is 0; give a number"),
        ("onoff(rate_on=1e-5, on=1e-5, off=1)", "phases; raise rate_on, or on"),
        ("poisson(rate=1, prompt=lognormal(mean=5, median=5, sigma=1))", "either mean or median"),
        ("poisson(rate=1, prompt=uniform(9, 5))", "high of uniform is 5; give a number of 9 to"),
        ("poisson(rate=1e-9, n=9)", "raise the rate"),
        ("sessions(rate=1, turns=1000, think=1, output=100000)", "a conversation has"),
    ],
)
def test_a_text_that_is_no_load_is_refused_in_one_line(text: str, said: str | None) -> None:
    with pytest.raises(InputError) as caught:
        Workload.open(text)
    assert said is None or said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_load_law_and_argument_is_explained() -> None:
    page = (ROOT / "docs" / "workloads.md").read_text(encoding="utf-8")
    for name, function in {**LOADS, **LAWS}.items():
        assert f"`{name}`" in page or f"`{name}(" in page
        for argument in signature(function).parameters:
            is_named = re.search(rf"`[^`]*\b{argument}\b[^`]*`", page) is not None
            assert is_named or argument in ("rest", "values"), f"{argument} of {name}"
    for argument in signature(shape_of).parameters:
        assert f"`{argument}`" in page


def test_a_python_call_has_the_same_checks() -> None:
    calls: list[Callable[[], Workload]] = [
        lambda: burst(5, lengths=chat(5), prompt=3),
        lambda: burst(-1),
        lambda: article(0),
        lambda: closed(clients=0),
        lambda: burst(5, prompt="long"),
        lambda: closed(clients=2, think="long"),  # type: ignore[arg-type]
        lambda: burst(5, prompt=2**24, shared_prefix=16),
    ]
    for call in calls:
        with pytest.raises(InputError, match=r"give|lower"):
            call()
