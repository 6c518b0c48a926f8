"""What is done to a load: other rates and lengths, parts, repetitions, mixes, another seed."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from batchwright import Constant, Simulator
from batchwright.errors import InputError
from batchwright.policies import Vllm
from batchwright.request import LONGEST, Request
from batchwright.workload import Workload, burst, chat, closed, poisson, sessions, uniform
from batchwright.workload.bootstrap import block_length
from strategies import for_every_seed

Change = Callable[[Workload], Workload]
CHANGES: dict[str, Change] = {
    "at_rate": lambda load: load.at_rate(3.0),
    "scaled": lambda load: load.scaled(rate=2, prompt=0.5, output=1.5),
    "between": lambda load: load.between(0.0, 5.0),
    "sample": lambda load: load.sample(0.5, 7),
    "tiled": lambda load: load.tiled(3),
    "head": lambda load: load.head(9),
    "with_max_tokens": lambda load: load.with_max_tokens(100),
    "mix": lambda load: Workload.mix([load, burst(5, prompt=7, output=8)]),
}
WITH_FOLLOWERS = ("scaled", "between", "sample", "head", "with_max_tokens", "mix")


def random_load(seed: int, most: int = 60) -> Workload:
    """A trace with ties, and with any of the optional columns."""
    random = Random(seed)
    count = random.randint(2, most)
    gaps = [random.choice([0.0, 0.25, 1.0, random.random()]) for _ in range(count)]
    gaps[-1] = 0.5
    prompts = [random.choice([5, 512, 700, 2000]) for _ in range(count)]
    options: dict[str, Any] = {}
    if random.random() < 0.5:
        options["client"] = [random.randrange(3) for _ in range(count)]
    if random.random() < 0.5:
        options["priority"] = [random.randrange(3) for _ in range(count)]
    if random.random() < 0.5:
        options["max_tokens"] = [random.randint(1, 300) for _ in range(count)]
    if random.random() < 0.6:
        options["hash_ids"] = [
            [random.choice([j, 100 * i + j + 50]) for j in range(-(-prompt // 512))]
            for i, prompt in enumerate(prompts)
        ]
    outputs = [random.randint(1, 300) for _ in range(count)]
    return Workload.from_columns(np.cumsum(gaps), prompts, outputs, name="trace", **options)


def rows(load: Workload) -> list[tuple[object, ...]]:
    """All but the arrival of every request that is known before a run."""
    return [row(r) for r in load.requests(512)]


def row(r: Request) -> tuple[object, ...]:
    return (r.prompt, r.true_output, r.max_tokens, r.priority, r.client, tuple(r.prefix))


# --- rate, time and lengths ---------------------------------------------------------------------


@for_every_seed(60)
def test_at_another_rate_come_the_same_requests(seed: int) -> None:
    load, rate = random_load(seed), Random(seed).uniform(0.01, 100.0)
    other = load.at_rate(rate)
    assert other.rate == pytest.approx(rate, rel=1e-12)
    assert rows(other) == rows(load)
    assert other.gap_cv == pytest.approx(load.gap_cv)
    assert any(f"to {rate:g} requests/s" in note for note in other.notes)


@pytest.mark.parametrize("load", [burst(4000), Workload.from_columns([0] * 4000, [1] * 4000, [1] * 4000)])
def test_a_load_that_comes_at_once_gets_poisson_arrivals(load: Workload) -> None:
    spread = load.at_rate(5.0)
    assert rows(spread) == rows(load)
    assert spread.rate == pytest.approx(5.0, rel=0.07) and spread.gap_cv == pytest.approx(1.0, abs=0.08)
    assert spread == load.at_rate(5.0) and spread.made is not None
    assert (spread.replicate(1).arrival != spread.arrival)[1:].all()
    assert spread.replicate(1) == spread.replicate(1)
    assert (rows(spread.replicate(1)) == rows(load)) == (load.made is None)


@for_every_seed(60)
def test_scaling_multiplies_and_rounds(seed: int) -> None:
    random = Random(seed)
    load = random_load(seed)
    rate, time, output = (random.choice([0.5, 1.0, 2.0, 3.7]) for _ in range(3))
    prompt = random.choice([0.001, 0.3, 1.0] if load.has_prefixes else [0.001, 1.0, 2.5])
    other = load.scaled(rate=rate, time=time, prompt=prompt, output=output)
    assert other.arrival == pytest.approx(load.arrival * time / rate)
    assert other.prompt.tolist() == [max(1, round(tokens * prompt)) for tokens in load.prompt.tolist()]
    whole = load.columns.output
    assert other.columns.output.tolist() == np.maximum(np.rint(whole * output), 1).astype(int).tolist()
    for mine, theirs in zip(other.requests(512), load.requests(512), strict=True):
        kept = min(len(theirs.prefix), mine.prompt // 512)
        assert list(mine.prefix) == list(theirs.prefix)[:kept]
    if output == 1:
        assert other.max_tokens.tolist() == load.max_tokens.tolist()


def test_limits_scale_with_the_outputs() -> None:
    own = Workload.from_columns([0, 1], [5, 5], [10, 20], max_tokens=[15, 30])
    assert own.scaled(output=2).max_tokens.tolist() == [30, 60]
    assert own.scaled(output=2).num_cut == 0
    given = Workload.from_columns([0, 1], [5, 5], [10, 20], max_tokens=12)
    assert given.scaled(output=2).output.tolist() == [12, 12]
    greatest = Workload.from_columns([0, 1], [5, 5], [10, 20])
    assert greatest.scaled(output=2).max_tokens.tolist() == [40, 40]
    oracle = Workload.from_columns([0, 1], [5, 5], [10, 20], max_tokens="exact").scaled(output=2)
    assert oracle.max_tokens.tolist() == [20, 40] and oracle.token_limit.is_oracle


def test_the_think_times_of_a_closed_loop_scale_with_time() -> None:
    load = closed(clients=2, n=6, think=4.0).scaled(time=0.25)
    assert load.columns.think is not None and load.columns.think.tolist() == [0, 0, 1, 1, 1, 1]
    assert np.isnan(load.arrival[2:]).all()


# --- parts and repetitions of the whole ------------------------------------------------------------


@for_every_seed(60)
def test_a_window_holds_what_arrives_in_it(seed: int) -> None:
    load = random_load(seed)
    random = Random(seed)
    instants = [random.uniform(0, load.span), load.span * random.uniform(0.5, 1.5) + 0.1, *load.arrival]
    start, end = sorted(random.sample(sorted({float(instant) for instant in instants}), 2))
    inside = [(r, row(r)) for r in load.requests(512) if start <= r.arrival < end]
    if not inside:
        with pytest.raises(InputError, match="no request arrives"):
            load.between(start, end)
        return
    window = load.between(start, end)
    assert rows(window) == [found for _, found in inside]
    first = inside[0][0].arrival
    assert window.arrival == pytest.approx([r.arrival - first for r, _ in inside])
    assert load.between(0.0, math.inf) == load


@for_every_seed(60)
def test_a_sample_is_a_part_in_the_same_order(seed: int) -> None:
    load, share = random_load(seed), Random(seed).uniform(0.01, 1.0)
    part = load.sample(share, seed)
    assert len(part) == max(1, round(share * len(load)))
    rest = iter(rows(load))
    assert all(found in rest for found in rows(part))  # a subsequence
    assert part == load.sample(share, seed)
    assert load.sample(1.0, seed) == load


def test_samples_choose_everybody_alike() -> None:
    load = Workload.from_columns(range(20), range(1, 21), [1] * 20)
    chosen = Counter(tokens for seed in range(2000) for tokens in load.sample(0.25, seed).prompt.tolist())
    assert len(chosen) == 20
    assert all(abs(count - 500) < 4 * math.sqrt(2000 * 0.25 * 0.75) for count in chosen.values())


@for_every_seed(40)
def test_tiles_are_a_mean_gap_apart(seed: int) -> None:
    load = random_load(seed)
    times = Random(seed).randint(1, 4)
    tiles = load.tiled(times)
    assert len(tiles) == times * len(load)
    assert tiles.rate == pytest.approx(load.rate)
    period = load.span * len(load) / (len(load) - 1)
    for i in range(times):
        part = tiles.arrival[i * len(load) : (i + 1) * len(load)]
        assert part == pytest.approx(i * period + load.arrival)
    assert [found[:5] for found in rows(tiles)] == times * [found[:5] for found in rows(load)]


def test_a_request_that_comes_again_shares_only_what_it_shared_before() -> None:
    load = Workload.from_columns([0, 1], [1024, 1024], [1, 1], hash_ids=[[1, 2], [1, 3]])
    keys = [tuple(r.prefix) for r in load.tiled(2).requests(512)]
    assert len({found[0] for found in keys}) == 1  # the prefix that both have
    assert len({found[1] for found in keys}) == 4  # the text that only one has


# --- mixes -------------------------------------------------------------------------------------------


@for_every_seed(60)
def test_a_mix_has_all_requests_by_arrival_and_clients_apart(seed: int) -> None:
    loads = [random_load(seed + i, 20) for i in range(Random(seed).randint(1, 4))]
    mix = Workload.mix(loads)
    expected = sorted(
        ((r.arrival, i, r.id, r) for i, load in enumerate(loads) for r in load.requests(512)),
        key=lambda found: found[:3],
    )
    assert mix.arrival.tolist() == [found[0] for found in expected]
    assert [row(r)[:4] for r in mix.requests(512)] == [row(found[3])[:4] for found in expected]
    owners: dict[int, set[tuple[int, int]]] = {}
    prefixes: dict[int, set[int]] = {}
    for r, (_, i, _, theirs) in zip(mix.requests(512), expected, strict=True):
        owners.setdefault(r.client, set()).add((i, theirs.client))
        for key in r.prefix:
            prefixes.setdefault(key, set()).add(i)
        if loads[i].has_prefixes:
            assert len(r.prefix) == len(theirs.prefix)
    assert all(len(found) == 1 for found in owners.values())
    assert all(len(found) == 1 for found in prefixes.values())


def test_a_mix_keeps_who_shares_what_though_the_pieces_differ() -> None:
    coarse = Workload.from_columns([0, 1], [700, 700], [1, 1], hash_ids=[[7, 8], [7, 9]])
    fine = burst(4, prompt=100, output=1, shared_prefix=48)
    keys = {r.id: list(r.prefix) for r in Workload.mix([coarse, fine]).requests(16)}
    mixed = sorted(keys.values(), key=len)
    assert [len(found) for found in mixed] == [9, 9, 9, 9, 43, 43]
    assert mixed[4][:32] == mixed[5][:32] and not set(mixed[4][32:]) & set(mixed[5])
    assert len({tuple(found[:3]) for found in mixed[:4]}) == 1
    assert len({key for found in mixed for key in found}) == 3 + 4 * 6 + 32 + 2 * 11


def test_a_mix_of_closed_loops_keeps_who_follows_whom() -> None:
    loads = [closed(clients=2, n=6, think=1.0, prompt=5, output=2), poisson(5, 1.0, 6, 2)]
    loads.append(sessions(rate=1.0, turns=3, think=2.0, n=6, prompt=7, output=2))
    mix = Workload.mix(loads)
    simulator = Simulator(Vllm(), Constant(0.1))
    simulator.run(mix.requests())
    assert len(simulator.log.column("id")) == 17
    assert len(simulator.arrived) == 4 + 4
    after, client = mix.columns.after, mix.client
    assert after is not None and client is not None
    follows = after >= 0
    assert (client[follows] == client[after[follows]]).all()
    assert (mix.arrival[~follows] == np.sort(mix.arrival[~follows])).all()


# --- repetitions ---------------------------------------------------------------------------------------


@for_every_seed(60)
def test_a_resampled_trace_is_blocks_of_its_rows(seed: int) -> None:
    load = random_load(seed)
    if load.has_prefixes:
        load = replace(load, columns=replace(load.columns, hashes=None))
    k = Random(seed).randint(1, 5)
    other = load.replicate(k)
    assert len(other) == len(load) and other.arrival[0] == 0.0
    assert other == load.replicate(k) and load.replicate(0) is load
    originals = [found[:5] for found in rows(load)]
    found = [found[:5] for found in rows(other)]
    gaps = np.diff(load.arrival, prepend=0.0)
    gaps[0] = load.span / (len(load) - 1)
    pairs = Counter(zip(originals, np.round(gaps, 6).tolist(), strict=True))
    drawn = zip(found[1:], np.round(np.diff(other.arrival), 6).tolist(), strict=True)
    assert set(drawn) <= set(pairs)
    length = block_length(len(load))
    for start in range(0, len(found) - length, length):  # every block is a run of rows, round the end
        block = found[start : start + length]
        assert any(block == (originals + originals)[i : i + length] for i in range(len(load)))


def test_no_seed_of_a_trace_resamples_as_another(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    lines = "".join(f"{i / 8},{i + 1},{i % 7 + 1}\n" for i in range(100))
    file.write_text("arrival_s,prompt,output\n" + lines)
    found = [Workload.open(file, seed=seed).replicate(k) for seed in range(5) for k in range(1, 5)]
    assert len(set(found)) == len(found)
    assert len({Workload.open(file, seed=seed).replicate(0) for seed in range(5)}) == 1
    assert Workload.open(file, seed=4).replicate(2) == found[4 * 4 + 1]


def test_the_seed_draws_the_arrivals_of_lengths_without_any(tmp_path: Path) -> None:
    file = tmp_path / "lengths.csv"
    file.write_text("prompt,output\n" + "".join(f"{i + 1},{i % 7 + 1}\n" for i in range(100)))
    found = [Workload.open(file, seed=seed).at_rate(4.0) for seed in (0, 0, 1, 2)]
    assert found[0] == found[1] and len(set(found)) == 3
    assert found[2].replicate(1) == found[3]


def test_resampling_has_the_mean_gap_of_the_trace_and_its_bursts() -> None:
    load = chat(4000, seed=1)
    trace = replace(load, made=None)  # as if it were read
    rates = [1 / trace.replicate(k).rate for k in range(1, 41)]
    error = np.std(rates) / math.sqrt(len(rates))
    assert abs(np.mean(rates) - 1 / trace.rate) < 4 * error
    assert np.std(rates) == pytest.approx(2 / 5 / math.sqrt(4000), rel=0.5)  # cv / rate / sqrt(n)
    assert np.mean([trace.replicate(k).gap_cv for k in range(1, 11)]) == pytest.approx(2.0, rel=0.05)


def test_a_repeated_row_does_not_hit_its_own_text() -> None:
    load = Workload.from_columns(range(50), [1024] * 50, [1] * 50, hash_ids=[[0, i + 1] for i in range(50)])
    keys = [tuple(r.prefix) for r in load.replicate(1).requests(512)]
    assert len({found[0] for found in keys}) == 1
    assert len({found[1] for found in keys}) == 50


@pytest.mark.parametrize("count", [1, 2, 3, 6, 7, 1000])
def test_a_block_is_the_root_of_the_number_of_requests(count: int) -> None:
    assert block_length(count) == round(math.sqrt(count))
    assert len(Workload.from_columns([0] * count, [1] * count, [1] * count).replicate(3)) == count


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("load", [chat(60), burst(40), poisson(50, 4.0, uniform(9, 90), uniform(9, 300))])
def test_what_was_done_to_a_made_load_is_done_to_its_repetitions(name: str, load: Workload) -> None:
    change = CHANGES[name]
    changed = change(load)
    if name == "mix":
        expected = Workload.mix([load.replicate(3), burst(5, prompt=7, output=8).replicate(3)])
    else:
        expected = change(load.replicate(3))
    assert changed.replicate(3) == expected != changed
    assert pickle.loads(pickle.dumps(changed)).replicate(3) == expected


@pytest.mark.parametrize("name", WITH_FOLLOWERS)
@pytest.mark.parametrize(
    "load",
    [
        closed(clients=4, n=24, think=1.0, prompt=20, output=uniform(1, 9)),
        sessions(rate=2.0, turns=3, think=1.0, n=24, prompt=20, output=5),
    ],
    ids=lambda load: load.name,
)
def test_changed_closed_loops_can_be_served_to_the_end(name: str, load: Workload) -> None:
    changed = load.scaled(rate=2) if name == "scaled" else CHANGES[name](load)
    simulator = Simulator(Vllm(), Constant(0.1))
    simulator.run(changed.requests())
    assert sorted(simulator.log.column("id")) == list(range(len(changed)))
    assert not np.isnan(changed.arrival_in(simulator.arrived)).any()
    assert changed.replicate(1) != changed or name == "with_max_tokens"


def test_a_sample_of_sessions_is_whole_sessions() -> None:
    load = sessions(rate=2.0, turns=3, think=1.0, n=30)
    part = load.sample(0.4, 1)
    assert part.client is not None
    assert set(Counter(part.client.tolist()).values()) == {3} and len(part) == 12


# --- your own columns -------------------------------------------------------------------------------------


def test_your_own_closed_loop() -> None:
    nan = math.nan
    load = Workload.from_columns([0, nan, 1], [5, 6, 7], [2, 2, 2], after=[-1, 0, -1], think=[0, 3.0, 0])
    simulator = Simulator(Vllm(async_scheduling=False), Constant(0.5))
    simulator.run(load.requests())
    assert load.arrival_in(simulator.arrived).tolist() == [0.0, 4.0, 1.0]
    open_load = Workload.from_columns([0, 1], [5, 6], [1, 1], after=[-1, -1])
    assert not open_load.has_followers and open_load == Workload.from_columns([0, 1], [5, 6], [1, 1])
    assert load != Workload.from_columns([0, nan, 1], [5, 6, 7], [2, 2, 2], after=[-1, 0, -1])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda load: load.at_rate(0), "rate is 0; give requests per second"),
        (lambda load: load.at_rate(math.nan), "rate is nan"),
        (lambda load: load.head(1).at_rate(1.0), "a single request has no rate"),
        (lambda load: load.scaled(rate=-1), "rate is to be multiplied by -1"),
        (lambda load: load.scaled(output="2"), "output is to be multiplied by '2'"),
        (lambda load: load.scaled(prompt=1e6), f"is over {LONGEST}; lower the factor"),
        (lambda load: load.scaled(time=1e6).scaled(time=1e6), "the last request would come at"),
        (lambda load: load.between(5, 5), "give a start before the end"),
        (lambda load: load.between(1e6, 2e6), "no request arrives from 1e+06 s to 2e+06 s"),
        (lambda load: load.sample(0), "a share of 0"),
        (lambda load: load.sample(0.5, -1), "seed is -1"),
        (lambda load: load.tiled(0), "times is 0"),
        (lambda load: load.tiled(10**9), "times is 1000000000"),
        (lambda load: replace(load, made=None).replicate(-1), "repetition -1 of chat"),
        (lambda load: Workload.mix([]), "a mix of 0 loads"),
        (lambda load: closed(clients=2).at_rate(3.0), "has no rate of its own"),
        (lambda load: closed(clients=2).tiled(3), "make it with a greater n"),
        (lambda load: sessions(rate=1, turns=2, think=1).scaled(prompt=0.5), "cannot be scaled apart"),
    ],
)
def test_nonsense_is_refused_in_one_line(change: Change, said: str) -> None:
    with pytest.raises(InputError) as caught:
        change(chat(50))
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_prompts_with_hashes_do_not_grow() -> None:
    load = Workload.from_columns([0], [700], [1], hash_ids=[[1, 2]])
    with pytest.raises(InputError, match="cannot grow by 2"):
        load.scaled(prompt=2)


def test_a_closed_loop_that_was_given_cannot_be_resampled() -> None:
    load = Workload.from_columns([0, math.nan], [5, 6], [1, 1], after=[-1, 0])
    with pytest.raises(InputError, match="cannot be resampled; use a load that is made"):
        load.replicate(1)


@pytest.mark.parametrize(
    ("arrival", "after", "think", "said"),
    [
        ([0, math.nan], [-1, 1], None, "request 1: after is 1, but must be an earlier request"),
        ([0, 1], [-1, 0], None, "request 1: arrival is 1.0, but must be nan"),
        ([0, math.nan], [-1, -1], None, "request 1: arrival is nan, but must be finite"),
        ([math.nan, 1], [0, -1], None, "request 0: after is 0"),
        ([0, math.nan], [-1, 0], [0, -1], "request 1: think is -1"),
        ([0, math.nan], [-1, 0], [0], "1 values of think for 2 requests"),
        ([0, math.nan], [-1], None, "1 values of after"),
    ],
)
def test_impossible_followers_are_refused(
    arrival: Sequence[float], after: Sequence[int], think: Sequence[float] | None, said: str
) -> None:
    with pytest.raises(InputError) as caught:
        Workload.from_columns(arrival, [5, 5], [5, 5], after=after, think=think)
    assert said in str(caught.value)
