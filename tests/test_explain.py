"""The paragraph says what the numbers say, in whole sentences, for every mix of policies."""

from __future__ import annotations

import re

import numpy as np
import pytest

import batchwright as bw
from batchwright.explain import PARTS, SMALL, paragraph
from batchwright.figures import seconds
from batchwright.run import Run
from batchwright.workload import Workload
from strategies import for_every_seed
from test_run import POLICIES, case

pytestmark = pytest.mark.pure  # the layers above the core are pure Python

COST = bw.Constant(0.025)


def random_load(seed: int, count: int = 60) -> Workload:
    random = np.random.default_rng(seed)
    return Workload.from_columns(
        random.exponential(0.2, count).cumsum(), random.integers(1, 90, count), random.integers(1, 60, count)
    )


def sentences(text: str) -> list[str]:
    return [part.removesuffix(".") for part in re.split(r"\.\s+", text)]


@for_every_seed(20)
def test_its_shares_are_those_of_the_partition(seed: int) -> None:
    names = np.random.default_rng(seed).permutation(list(POLICIES))[: 1 + seed % 3].tolist()
    runs = {name: case(seed, name).run for name in names}
    found = sentences(paragraph(runs))
    for name, sentence in zip(names, found, strict=False):
        slots = runs[name].slots
        assert sentence.startswith(f"{name} computes prompts and tokens in ")
        said = re.findall(r"([\d.]+%) (?:of|goes|is)", sentence)
        rest = sorted((slots.shares[part] for part in PARTS if slots.shares[part] >= SMALL), reverse=True)
        assert said == [f"{slots.prefill + slots.decode:.1%}", *(f"{share:.1%}" for share in rest)]
        for part, words in PARTS.items():
            assert (words in sentence) == (slots.shares[part] >= SMALL)


@for_every_seed(20)
def test_it_is_made_of_whole_sentences(seed: int) -> None:
    names = np.random.default_rng(seed).permutation(list(POLICIES))[: 1 + seed % len(POLICIES)].tolist()
    text = paragraph({name: case(seed, name).run for name in names})
    assert text.endswith(".") and not re.search(r"\s\s|\s[.,;]|nan|,,|\band and\b|\n", text)
    assert 2 <= len(sentences(text)) <= 10
    assert "with  " not in text and text.count("(") == text.count(")")


def test_it_orders_policies_by_mean_e2e_and_says_how_much_longer_the_last_one_takes() -> None:
    runs = bw.compare(random_load(1), COST, policies={"static": "static(batch_size=8)", "vllm": "vllm"})
    means = {name: run.summary.e2e.mean for name, run in runs.items()}
    ratio = means["static"] / means["vllm"]
    said = (
        f"a request takes {seconds(means['vllm'])} with vllm and {seconds(means['static'])} with static on "
        f"average, {ratio:,.3g} times as long as with vllm."
    )
    assert ratio > 1.05 and said in paragraph(runs)
    assert "clients of static see nothing before their batch has ended." in paragraph(runs)


def test_equal_policies_are_not_told_apart() -> None:
    runs = bw.compare(random_load(2), COST, policies={"a": "vllm", "b": "vllm"})
    assert "times as long" not in paragraph(runs)


def test_it_says_who_runs_out_of_kv_blocks_and_how_often_requests_are_preempted() -> None:
    load = random_load(3)
    most = int((load.prompt + load.max_tokens).max())
    limits = bw.Limits(max_num_seqs=32, num_kv_blocks=2 * -(-most // 16), max_model_len=most)
    runs = bw.compare(load, COST, limits, {"vllm": "vllm"})
    summary = runs["vllm"].summary
    assert summary.num_preemptions > 1 or summary.kv_peak >= 0.99
    said = f"vllm runs out of KV blocks: {summary.kv_peak:.1%} are taken at the peak"
    assert said in paragraph(runs)
    roomy = bw.compare(load, COST, bw.Limits(max_num_seqs=32, num_kv_blocks=10**6), {"vllm": "vllm"})
    assert "KV blocks" not in paragraph(roomy)


def test_it_has_the_numbers_of_the_table_where_loads_are_repeated() -> None:
    load = bw.Workload.open("poisson(n=100, rate=8, prompt=uniform(10, 200), output=uniform(5, 40))")
    runs = bw.compare(load, COST, policies={"a": "vllm", "b": "orca(2)"}, repeat=4, slo="ttft=300ms")
    text = paragraph(runs, runs.estimates.value)
    mean = runs.estimates.value("a", "e2e_s.mean")
    assert seconds(mean) != seconds(runs["a"].summary.e2e.mean)
    assert f"{seconds(mean)} with a" in text
    assert f"{runs.estimates.value('a', 'attainment'):.1%} with a" in text
    assert text in " ".join(runs.table().split())


def test_the_only_slot_of_a_policy_is_one() -> None:
    runs = bw.compare(random_load(3), COST, policies={"orca": "orca(max_batch_size=1)"})
    text = paragraph(runs)
    assert "of the time of its one slot." in text and "takes" in text and "see nothing" not in text


def test_of_many_policies_the_fastest_the_slowest_and_the_idlest_stand_for_all() -> None:
    texts = {f"s{size}": f"static(batch_size={size})" for size in (2, 4, 8, 16)} | {"vllm": "vllm"}
    runs = bw.compare(random_load(4), COST, policies=texts)
    order = sorted(runs, key=lambda name: runs[name].summary.e2e.mean)
    named = [sentence.split()[0] for sentence in sentences(paragraph(runs)) if "computes" in sentence]
    assert len(named) == 3 and {order[0], order[-1]} < set(named)
    useful = {name: runs[name].slots.prefill + runs[name].slots.decode for name in order[1:-1]}
    assert min(useful, key=lambda name: useful[name]) in named


def test_saturated_policies_are_named() -> None:
    load = random_load(5, count=500)
    runs = bw.compare(load, COST, policies={"slow": "orca(max_batch_size=1)", "vllm": "vllm"})
    assert runs["slow"].saturation().is_saturated
    assert "slow is past saturation: its waits grow with the trace" in paragraph(runs)
    both = {"slow": runs["slow"], "slow too": runs["slow"]}
    assert "slow and slow too are past saturation: their waits grow" in paragraph(both)


def test_who_finishes_nothing_is_said_to_and_nobody_has_no_paragraph() -> None:
    load = Workload.from_columns([0.0], [40], [3])
    simulator = bw.Simulator(bw.vllm(), COST, bw.Limits(num_kv_blocks=8, max_model_len=20))
    simulator.run(load.requests())
    run = Run("vllm", load, simulator)
    assert paragraph({"vllm": run}) == "vllm finishes no request."
    assert paragraph({"a": run, "b": run}) == "a and b finish no request."
    assert paragraph({}) == ""
