"""Replicas in a comparison: by their text, on GPUs that differ, and as numbers that add up."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import batchwright as bw
from batchwright.cli import main
from batchwright.cluster import ROUTERS, server, servers
from batchwright.cluster.routers import Central, LeastLoaded, PowerOfTwo, PrefixAware
from batchwright.columns_file import read_columns
from batchwright.errors import BatchwrightError, InputError, LimitError
from batchwright.run import ReplicatedRun
from batchwright.run.ticks import token_times
from batchwright.scenario.keys import Scenario
from batchwright.scenario.live import prepare_live
from batchwright.workload import Workload
from strategies import for_every_seed

COST = bw.Linear(base=0.01, prefill=2e-5, decode=1e-4, context=1e-7)
H100 = bw.Hosted(bw.Roofline("H100-SXM", "llama-3.1-8b"))
TIGHT = bw.Limits(max_num_seqs=16, num_kv_blocks=60)
POLICIES = ("vllm", "vllm(async_scheduling=false)", "static(4)", "static(3, padded=false, streamed=true)",
            "dynamic(4)", "orca(4)")  # fmt: skip


def load_of(count: int = 120, rate: float = 30.0, seed: int = 1, clients: int = 0) -> Workload:
    random = np.random.default_rng(seed)
    arrival = np.cumsum(random.exponential(1 / rate, count))
    client = random.integers(0, clients, count) if clients else None
    return Workload.from_columns(
        arrival, random.integers(1, 400, count), random.integers(1, 90, count), client=client
    )


def compared(load: Workload, limits: bw.Limits = TIGHT, **texts: str) -> bw.Runs:
    return bw.compare(load, COST, limits, texts, slo="ttft=1s,itl=200ms")


def replicated(run: bw.Run) -> ReplicatedRun:
    assert isinstance(run, ReplicatedRun)
    return run


# --- texts --------------------------------------------------------------------------------


def test_a_text_names_policy_and_router_with_their_flags() -> None:
    found = server(
        "replicas(n=2, policy=vllm@0.19(max-num-seqs=64), router=power_of_two(seed=3, measure=tokens))"
    )
    assert found == bw.replicas(
        n=2, policy=bw.vllm(version="0.19", max_num_seqs=64), router=PowerOfTwo(seed=3, measure="tokens")
    )
    assert server("replicas(4)").count == 4
    assert server("vllm(max_num_seqs=3)") == bw.vllm(max_num_seqs=3)
    assert bw.replicas(n=3, policy="orca(2)", router="central") == server("replicas(3, orca(2), central)")
    assert server("replicas(gpus=[H100-SXM, A100-80G-SXM])").gpus == ("H100-SXM", "A100-80G-SXM")


def test_a_list_may_mix_policies_and_replicas() -> None:
    text = "vllm,replicas(n=4,policy=vllm,router=least_loaded),replicas(n=4,router=central)"
    found = servers(text)
    assert list(found.values()) == [
        bw.vllm(), bw.replicas(n=4, router=LeastLoaded()), bw.replicas(n=4, router=Central())
    ]  # fmt: skip
    assert list(found)[1] == "replicas(n=4,policy=vllm,router=least_loaded)"


@pytest.mark.parametrize("name", ROUTERS)
def test_every_router_has_its_name_in_the_table(name: str) -> None:
    assert server(f"replicas(n=2, router={name})").router == ROUTERS[name]()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("replicas", "neither n nor gpus is given"),
        ("replicas(n=0)", "n is 0, but must be a whole number of at least 1"),
        ("replicas(n=10001)", "n is 10001, but must be at most 10000"),
        ("replicas(n=1.5)", "n is 1.5, but must be a whole number"),
        ("replicas(n=2, gpus=[H100-SXM])", "n is 2, but 1 gpus are given"),
        ("replicas(gpus=[])", "neither n nor gpus is given"),
        ("replicas(gpus=H100-SXM)", "must be a list in brackets"),
        ("replicas(gpus=[H101])", "unknown GPU 'H101'"),
        ("replicas(gpus=[none])", "gpus has None, but must have names of GPUs"),
        ("replicas(gpus=[[H100-SXM]])", "gpus has ('H100-SXM',), but must have names"),
        ("replicas(gpus=[L4], gpu_memory_utilization=nan)", "gpu_memory_utilization is 'nan', but must be"),
        ("replicas(gpus=[L4], gpu_memory_utilization=2)", "is 2, but must be a number from 0 to 1"),
        ("replicas(n=2, gpu_memory_utilization=0.5)", "is that of gpus, which are not given"),
        ("replicas(n=2, policy=none)", "policy is None, but must be one policy"),
        ("replicas(n=2, policy=[vllm, orca])", "but must be one policy"),
        ("replicas(n=2, policy=replicas(n=2))", "unknown policy 'replicas'"),
        ("replicas(n=2, policy=static(batch_size=auto))", "is found for one server only"),
        ("replicas(n=2, router=none)", "router is None, but must be one router"),
        ("replicas(n=2, router=middle)", "unknown router 'middle'; known: central, least_loaded"),
        ("replicas(n=2, router=random(seed=-1))", "random: seed is -1"),
        ("replicas(n=2, router=power_of_two(choices=1))", "choices is 1"),
        (
            "replicas(n=2, router=power_of_two(measure=time))",
            "measure 'time' is not known; known: requests, tokens",
        ),
        ("replicas(n=2, router=prefix_aware(cache_threshold=2))", "cache_threshold is 2"),
        ("replicas(n=2, router=prefix_aware(balance_rel_threshold=0.5))", "balance_rel_threshold is 0.5"),
        ("replicas(n=2, rooter=random)", "has no flag 'rooter'; did you mean 'router'"),
        ("replica(n=2)", "unknown policy 'replica'; did you mean 'replicas'"),
        ("vlm", "unknown policy 'vlm'; did you mean 'vllm'"),
        ("vllm,vllm", "is listed twice"),
        ("", "no policy is named"),
    ],
)
def test_a_text_that_is_wrong_is_one_clear_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        servers(text)
    assert message in str(caught.value) and "\n" not in str(caught.value)


# --- numbers add up -----------------------------------------------------------------------


@for_every_seed(12)
def test_one_replica_has_the_numbers_of_its_policy(seed: int) -> None:
    random = Random(seed)
    policy, router = random.choice(POLICIES), random.choice([name for name in ROUTERS if name != "central"])
    load = load_of(seed=seed, rate=random.choice([4.0, 30.0]), clients=3)
    runs = compared(load, one=policy, same=f"replicas(n=1, policy={policy}, router={router})")
    found = runs.to_json()["policies"]
    same, one = found["same"], found["one"]
    assert [part["num_requests"] for part in same.pop("replicas")] == [len(load)]
    assert same == one
    assert all(value[0] == 0 for value in runs.to_json()["differences"]["same - one"].values())
    for name, column in runs["one"].requests().items():
        np.testing.assert_array_equal(column, runs["same"].requests()[name])
    for name, column in runs["one"].steps().items():
        np.testing.assert_array_equal(column, runs["same"].steps()[name])
    for length in (1.0, 2.5):
        rows = [[window.to_json() for window in run.windows(length, runs.slo)] for run in runs.values()]
        assert rows[0] == rows[1]


@for_every_seed(16)
def test_what_replicas_did_adds_up(seed: int) -> None:
    random = Random(seed)
    policy, router = random.choice(POLICIES), random.choice(list(ROUTERS))
    load = load_of(seed=seed, rate=random.choice([10.0, 60.0]), clients=3)
    run = replicated(compared(load, it=f"replicas(n=3, policy={policy}, router={router})")["it"])
    columns, parts = run.requests(), run.replicas
    assert sorted(np.concatenate([np.flatnonzero(columns["replica"] == i) for i in range(3)])) == list(
        range(120)
    )
    assert [part.num_requests for part in parts] == np.bincount(columns["replica"], minlength=3).tolist()
    assert sum(run.slots.shares.values()) == pytest.approx(1)
    assert run.slots.num_slots == sum(part.slots.num_slots for part in parts)
    steps = run.steps()
    assert len(steps["step"]) == run.summary.num_steps == sum(part.summary.num_steps for part in parts)
    assert steps["finished"].sum() == run.summary.num_finished == 120
    for index, part in enumerate(parts):
        rows = steps["replica"] == index
        np.testing.assert_array_equal(steps["end_s"][rows], part.steps()["end_s"])
    waits = run.waiting.area(1e9)
    assert waits == pytest.approx(sum(part.waiting.area(1e9) for part in parts))
    tokens = sum(window.output_throughput * (window.end - window.start) for window in run.windows(1.0))
    assert tokens == pytest.approx(int(load.output.sum()))


@for_every_seed(12)
def test_gaps_between_tokens_are_those_of_every_request(seed: int) -> None:
    random = Random(seed)
    load = load_of(seed=seed, count=60)
    run = compared(load, it=f"replicas(n=3, policy=vllm, router={random.choice(list(ROUTERS))})")["it"]
    times = token_times(run)
    assert [len(tokens) for tokens in times] == load.output.tolist()
    gaps = np.concatenate([np.diff(tokens) for tokens in times])
    assert run.itl().mean == pytest.approx(gaps.mean()) and run.itl().p99 == pytest.approx(
        np.percentile(gaps, 99)
    )
    greatest = [np.diff(tokens).max() if len(tokens) > 1 else np.nan for tokens in times]
    np.testing.assert_allclose(run.gaps().greatest, greatest)


def test_the_mean_batch_is_that_of_one_replica_while_it_is_busy() -> None:
    run = replicated(compared(load_of(), it="replicas(n=3, router=random)")["it"])
    steps = run.steps()
    seconds = steps["end_s"] - steps["start_s"]
    seated = steps["running"] + steps["finished"]
    assert run.state().mean_batch == pytest.approx((seated * seconds).sum() / seconds.sum(), rel=0.05)
    assert run.state().peak_batch == max(part.state().peak_batch for part in run.replicas)
    shares = [part.state().kv_occupancy for part in run.replicas]
    assert min(shares) < run.state().kv_occupancy < max(shares)


def test_a_replica_that_gets_nothing_stands_for_nothing() -> None:
    load = load_of(count=1)
    run = replicated(compared(load, it="replicas(n=3, policy=vllm)")["it"])
    assert [part.num_requests for part in run.replicas] == [1, 0, 0]
    assert run.summary.num_finished == 1 and np.isfinite(run.state().kv_occupancy)
    assert sum(run.slots.shares.values()) == pytest.approx(1)
    assert len(run.windows(0.5)) >= 1


def test_more_replicas_serve_sooner_and_say_how_many_they_are() -> None:
    runs = compared(load_of(rate=60.0, count=300), one="vllm", four="replicas(n=4, router=least_loaded)")
    assert runs["four"].summary.ttft.p99 < runs["one"].summary.ttft.p99 / 2
    assert runs.difference("four", "one", "ttft_s.mean").is_clear
    table = runs.table()
    assert [line.split()[-2:] for line in table.splitlines() if line.startswith(" replicas")] == [["1", "4"]]
    assert " output tokens/s each " in table and " requests each, least " in table
    assert "the 64 slots of its 4 replicas" in table
    assert " replicas" not in compared(load_of(), one="vllm").table()


def test_every_run_starts_with_a_router_that_remembers_nothing() -> None:
    load = Workload.open("poisson(n=50, rate=20, prompt=uniform(1, 99), output=geometric(mean=9))")
    policies = {"a": bw.replicas(n=3, router="random"), "b": "replicas(n=3, router=random(seed=0))"}
    runs = bw.compare(load, COST, TIGHT, policies, repeat=3)
    found = runs.to_json()
    assert found["policies"]["a"] == found["policies"]["b"]
    assert bw.compare(load, COST, TIGHT, policies, repeat=3).to_json() == found


def test_who_watches_the_progress_changes_nothing() -> None:
    told: list[float] = []
    policies = {"it": "replicas(n=3, router=least_loaded)"}
    watched = bw.compare(load_of(), COST, TIGHT, policies, lambda name, share: told.append(share))
    assert watched.to_json() == bw.compare(load_of(), COST, TIGHT, policies).to_json()
    assert told == sorted(told) and told[-1] == 1.0 and len(told) > 100


def test_rejected_requests_belong_to_no_replica() -> None:
    load = Workload.from_columns([0, 1, 2], [10, 500, 10], [5, 5, 5])
    run = compared(load, bw.Limits(max_model_len=100), it="replicas(n=2)")["it"]
    assert run.requests()["replica"].tolist() == [0, -1, 0]
    assert run.summary.num_rejected == 1 and run.summary.num_finished == 2


def test_clients_that_wait_for_their_answers_go_to_any_replica() -> None:
    load = Workload.open("closed(clients=6, n=90, think=0.2, prompt=100, output=20)")
    runs = compared(load, one="vllm", three="replicas(n=3, router=least_loaded)")
    run = replicated(runs["three"])
    assert run.summary.num_finished == 90 and not np.isnan(run.arrival).any()
    assert all(part.num_requests > 20 for part in run.replicas)
    assert runs["three"].summary.duration < runs["one"].summary.duration


def test_static_batches_fill_in_every_replica_before_they_start() -> None:
    run = replicated(compared(load_of(), it="replicas(n=2, policy=static(4))")["it"])
    assert run.summary.num_finished == 120 and not run.is_streamed
    assert np.isnan(run.summary.itl.mean) and run.slots.padding > 0


# --- GPUs that differ ---------------------------------------------------------------------


def test_each_gpu_brings_its_roofline_and_its_blocks() -> None:
    load = load_of(count=60)
    cluster = bw.replicas(gpus=("H100-SXM", "L40S", "H100-SXM"), router="least_loaded")
    run = replicated(bw.compare(load, H100, bw.Limits(), {"it": cluster})["it"])
    for gpu, part in zip(cluster.gpus or (), run.replicas, strict=True):
        device = bw.Roofline(gpu, "llama-3.1-8b")
        assert part.limits.num_kv_blocks == device.num_kv_blocks()
        alone = bw.compare(load, bw.Hosted(device), bw.Limits(), {"vllm": "vllm"})["vllm"]
        assert part.stretch(_step(), 3) == alone.stretch(_step(), 3)
    assert run.replicas[1].num_requests < run.replicas[0].num_requests
    assert "hold 28" in run.note or "KV blocks" in run.note


@pytest.mark.parametrize("servers", ["n=2", "gpus=[H100-SXM, L40S]"])
def test_an_oracle_is_told_in_replicas_too(servers: str) -> None:
    text = f"replicas({servers}, policy=ordered(sjf(exact)))"
    note = bw.compare(load_of(count=20), H100, bw.Limits(), {"it": text})["it"].note
    assert note.startswith("it: ") and note.endswith("knows how long every output will be: an oracle")
    assert ("KV blocks; " in note) == ("gpus" in servers)


def test_tokens_per_decode_are_those_of_all_replicas() -> None:
    policy = "vllm(num_speculative_tokens=3, acceptance=0.7)"
    one = bw.compare(load_of(count=40), H100, bw.Limits(), {"it": policy})["it"]
    two = bw.compare(load_of(count=40), H100, bw.Limits(), {"it": f"replicas(n=2, policy={policy})"})["it"]
    each = [part.tokens_per_decode for part in replicated(two).replicas]
    assert 1.0 < min(each) <= two.tokens_per_decode <= max(each)
    assert two.tokens_per_decode == pytest.approx(one.tokens_per_decode, abs=0.2)


def _step() -> Any:
    from batchwright.step import Step

    step = Step()
    step.quiet(4, 0, 4000)
    return step


def test_the_same_gpu_everywhere_is_n() -> None:
    load = load_of(count=60)
    same = {"n": bw.replicas(n=2), "gpus": bw.replicas(gpus=("H100-SXM", "h100-sxm"))}
    runs = bw.compare(load, H100, bw.Limits(), same)
    found = runs.to_json()["policies"]
    assert found["n"] == found["gpus"]
    bare = bw.compare(load, H100.cost, bw.Limits(), same).to_json()["policies"]
    assert bare["n"] == bare["gpus"]


def test_a_link_of_its_own_stays_on_another_gpu() -> None:
    from batchwright.cluster.replicas import on_gpu

    moved = on_gpu(bw.Roofline("H100-SXM", "llama-3.1-8b", 2, link=1e9), "L40S")
    assert moved == bw.Roofline("L40S", "llama-3.1-8b", 2, link=1e9)
    assert on_gpu(bw.Roofline("H100-SXM", "llama-3.1-8b", 2), "L40S") == bw.Roofline(
        "L40S", "llama-3.1-8b", 2
    )


SPLITS: dict[str, dict[str, Any]] = {
    "pipeline": {"pp": 2},
    "ranks": {"dp": 2, "ep": True},
    "all": {"tp": 2, "pp": 2, "dp": 2, "ep": True, "router_skew": 0.5, "context_cv": 0.25},
}


@pytest.mark.parametrize("split", SPLITS.values(), ids=list(SPLITS))
def test_a_split_model_is_split_alike_on_every_gpu(split: dict[str, Any]) -> None:
    from batchwright.cluster.replicas import on_gpu

    cost = bw.Hosted(bw.Roofline("H100-SXM", "qwen3-30b-a3b", **split))
    assert on_gpu(cost, "H100-SXM") == cost
    same = {"n": bw.replicas(n=2), "gpus": bw.replicas(gpus=("H100-SXM", "H100-SXM"))}
    found = bw.compare(load_of(count=40), cost, bw.Limits(), same).to_json()["policies"]
    assert found["n"] == found["gpus"]


@pytest.mark.parametrize(
    ("cost", "limits", "gpu", "error", "message"),
    [
        (COST, bw.Limits(), "L40S", InputError, "gpus are given, but the cost is Linear"),
        (H100, bw.Limits(num_kv_blocks=500), "L40S", InputError, "num_kv_blocks is 500, not the 2"),
        (H100, bw.Limits(), "T4", LimitError, "on tp 1 of T4 does not fit"),
    ],
)
def test_gpus_that_cannot_be_are_one_clear_line(
    cost: Any, limits: bw.Limits, gpu: str, error: type[BatchwrightError], message: str
) -> None:
    with pytest.raises(error, match=message):
        bw.compare(load_of(), cost, limits, {"it": bw.replicas(gpus=(gpu, gpu))})


# --- on the command line ------------------------------------------------------------------


LOAD = "poisson(n=60, rate=20, prompt=uniform(1, 99), output=geometric(mean=9))"


Command = Callable[..., str]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command in an empty folder; what it prints, or the error that it ends with."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["batchwright", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        assert end.value.code == code, printed.err
        return printed.err if code else printed.out

    return run


def test_the_memory_that_an_engine_uses_holds_for_all_gpus(command: Command) -> None:
    flags = ("compare", LOAD, "--policies", "replicas(gpus=[H100-SXM, L40S])", "--json")
    for share in ("0.92", "0.8"):
        found = json.loads(command(*flags, "--gpu-memory-utilization", share))
        each = found["policies"]["replicas(gpus=[H100-SXM, L40S])"]["replicas"]
        assert each[0]["num_kv_blocks"] == found["limits"]["num_kv_blocks"] > each[1]["num_kv_blocks"]
        assert any("GPUs of its replicas hold" in note for note in found["notes"])


def test_a_run_folder_says_which_replica_it_was(command: Command) -> None:
    text = "replicas(n=2, router=random)"
    command("compare", LOAD, "--policies", f"vllm,{text}", "-o", "run")
    for name in ("requests", "steps"):
        columns = read_columns(Path("run", name))
        ours = columns["policy"] == text
        assert set(columns["replica"][ours]) == {0, 1} and set(columns["replica"][~ours]) == {0}
    command("compare", "run/config.yaml", "-o", "again")
    for file in Path("run").glob("*.parquet"):
        assert file.read_bytes() == Path("again", file.name).read_bytes()
    assert f"{text}" in command("runs", "diff", "run", "again")
    command("compare", LOAD, "--policies", "vllm", "-o", "one")
    assert "replica" not in read_columns(Path("one", "requests"))


def test_a_router_of_ones_own_comes_from_a_policy_file(command: Command) -> None:
    text = (
        "from batchwright import replicas\n"
        "def router(request, replicas):\n"
        "    return 1 if request.prompt > 50 else 0\n"
        "policy = replicas(n=2, router=router)\n"
    )
    file = Path("mine.py")
    file.write_text(text)
    found = json.loads(command("compare", LOAD, "--policy-file", "mine.py", "--json"))["policies"]["mine"]
    prompts = Workload.open(LOAD).prompt
    assert [one["num_requests"] for one in found["replicas"]] == [(prompts <= 50).sum(), (prompts > 50).sum()]
    file.write_text(text.replace("prompt > 50", "length > 50"))
    said = command("compare", LOAD, "--policy-file", "mine.py", code=2)
    assert said.startswith("batchwright: mine.py, line 3: AttributeError")


def test_one_timeline_of_several_replicas_is_refused(command: Command) -> None:
    flags = ("--policies", "replicas(n=2)")
    export = ("export", LOAD, "--format", "perfetto", "-o", "trace.json")
    for arguments in (("timeline", LOAD, *flags), (*export, *flags)):
        assert "each of its 2 replicas has steps of its own" in command(*arguments, code=2)
    assert not Path("trace.json").exists()


def test_what_is_of_one_server_refuses_several(command: Command) -> None:
    flags = ("--policies", "replicas(n=2)")
    said = command("export", LOAD, "--format", "command", "-o", "run.sh", *flags, code=2)
    assert "is several servers, which no one command starts" in said and not Path("run.sh").exists()
    with pytest.raises(InputError, match=r"replicas\(n=2\): has several replicas, but a live run one engine"):
        prepare_live(Scenario(workload=LOAD, policies="replicas(n=2)"))


def test_the_files_of_other_tools_hold_the_requests_of_all_replicas(command: Command) -> None:
    command("export", LOAD, "--format", "vllm-bench", "-o", "result.json", "--policies", "replicas(n=2)")
    found = json.loads(Path("result.json").read_text())
    assert found["completed"] == 60 and len(found["itls"]) == 60


def test_blocks_that_were_given_are_not_those_of_other_gpus(command: Command) -> None:
    flags = ("--policies", "replicas(gpus=[H100-SXM, L40S])", "--num-gpu-blocks-override", "500")
    assert "num_kv_blocks is 499, not the 2" in command("compare", LOAD, *flags, code=2)


def test_prefixes_are_found_more_often_by_a_router_that_looks_for_them() -> None:
    load = Workload.open("sessions(n=300, rate=4, turns=5, think=3, prompt=200, output=40)")
    policies = {"blind": "replicas(n=4, router=random)", "aware": bw.replicas(n=4, router=PrefixAware())}
    runs = bw.compare(load, H100, bw.Limits(), policies)
    assert runs["aware"].state().hit_rate > runs["blind"].state().hit_rate
