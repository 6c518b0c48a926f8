"""Edge cases: what the four commands say is checked against other computations of the same."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchwright import Hosted, Limits, Linear, Workload
from batchwright.article import claims
from batchwright.cli import main
from batchwright.cost import Constant
from batchwright.edge import (
    long_prompt,
    long_prompt_words,
    max_model_len,
    max_num_seqs,
    max_num_seqs_words,
    seats,
    short_flood,
)
from batchwright.edge.answer import as_json
from batchwright.edge.serve import serve
from batchwright.edge.server import Server
from batchwright.edge.steps import binomial_mean, with_chunk, with_prompts
from batchwright.errors import InputError, LimitError

pytestmark = pytest.mark.pure
ROOT = Path(__file__).resolve().parent.parent
KEY = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)
H100 = Server()


@pytest.fixture(scope="module")
def flood() -> short_flood.ShortFlood:
    return short_flood.short_flood(requests=800, repeat=2)


@pytest.fixture(scope="module")
def prompts() -> long_prompt.LongPrompt:
    return long_prompt.long_prompt(requests=600, repeat=1)


@pytest.fixture(scope="module")
def queue() -> max_num_seqs.MaxNumSeqs:
    return max_num_seqs.max_num_seqs(requests=300)


@pytest.fixture(scope="module")
def lengths() -> max_model_len.MaxModelLen:
    return max_model_len.max_model_len(requests=300)


# --- short-flood ------------------------------------------------------------------------


def test_the_articles_ten_percent_is_what_the_simulator_gives(flood: short_flood.ShortFlood) -> None:
    assert flood.claimed_share == pytest.approx(0.10)
    assert flood.claimed_longer == pytest.approx(0.10, abs=0.002)
    load = Workload.from_columns([0.0], [16], [20], name="one")
    policy, limits = "vllm(async_scheduling=false)", Limits(max_model_len=64)
    hosted = Hosted(Constant(claims.CLAIMED_STEP), claims.CLAIMED_SCHEDULING, 0.0)
    alone, both = (
        float(serve(policy, load, cost, limits).requests()["finished_s"][0])
        for cost in (Constant(claims.CLAIMED_STEP), hosted)
    )
    assert alone == pytest.approx(20 * 0.5e-3) and both == pytest.approx(20 * 0.55e-3)


def test_the_measured_host_takes_the_claimed_time_at_four_running(flood: short_flood.ShortFlood) -> None:
    assert flood.claimed_running == pytest.approx(4)  # 20 us + 4 x 7.5 us
    assert flood.rows[0].host == pytest.approx(20e-6 + 8 * 7.5e-6)


def test_the_flood_serves_what_its_formulas_say(flood: short_flood.ShortFlood) -> None:
    for row in flood.rows:
        assert row.synchronous.value == pytest.approx(row.synchronous_form, rel=0.04), row.running
        assert row.asynchronous.value == pytest.approx(row.asynchronous_form, rel=0.04), row.running
        assert row.lost.value == pytest.approx(row.lost_form, rel=0.02), row.running


def test_the_mean_step_is_that_of_seats_that_are_followed_one_by_one() -> None:
    random, running, device = np.random.Generator(np.random.PCG64(1)), 96, H100.device
    left = random.integers(1, 33, running)
    age = np.zeros(running, np.int64)
    found = []
    for _ in range(3000):
        is_first = age == 0
        reading = int((16 + age[~is_first] - 1).sum())
        step = with_prompts(int((~is_first).sum()), reading, int(is_first.sum()), 16)
        found.append(device.seconds(step))
        age += 1
        ended = age == left
        left[ended], age[ended] = random.integers(1, 33, int(ended.sum())), 0
    assert short_flood.device_seconds(H100, running, 16.5) == pytest.approx(np.mean(found[500:]), rel=0.003)


def test_the_crossings_are_where_the_formulas_cross(flood: short_flood.ShortFlood) -> None:
    assert flood.crossing is not None and flood.worth is not None and flood.host_bound is None
    assert (
        short_flood.lost_form(H100, flood.crossing - 1) < 0.1 <= short_flood.lost_form(H100, flood.crossing)
    )
    rates = [short_flood.rate(H100, n, "asynchronous") for n in (flood.worth - 1, flood.worth)]
    other = [short_flood.rate(H100, n, "synchronous") for n in (flood.worth - 1, flood.worth)]
    assert rates[0] <= other[0] and rates[1] > other[1]
    rows = {row.running: row for row in flood.rows}
    assert rows[8].asynchronous.value < rows[8].synchronous.value
    assert rows[128].asynchronous.value > rows[128].synchronous.value


def test_a_binomial_mean_is_exact_where_every_number_is_counted() -> None:
    assert binomial_mean(10, 0.3, float) == pytest.approx(3.0, rel=1e-9)
    assert binomial_mean(10, 0.3, lambda k: float(k * k)) == pytest.approx(9 + 2.1, rel=1e-9)
    assert binomial_mean(4096, 0.5, lambda k: float(k * k)) == pytest.approx(2048**2 + 1024, rel=1e-3)


# --- long-prompt ------------------------------------------------------------------------


def test_the_worst_gap_is_the_longest_step_of_the_formula(prompts: long_prompt.LongPrompt) -> None:
    for form in prompts.forms:
        assert form.itl_most == pytest.approx(form.longest_step, rel=0.03), form.name
    assert [form.chunks for form in prompts.forms] == [1, 4, 13, 50]


def test_the_formula_of_long_ttft_is_near_and_not_high(prompts: long_prompt.LongPrompt) -> None:
    for form in prompts.forms:
        assert 0.8 * form.long_ttft_mean < form.long_ttft < 1.15 * form.long_ttft_mean, form.name


def test_a_threshold_frees_short_requests_at_little_cost(prompts: long_prompt.LongPrompt) -> None:
    """Without one a running prompt takes the whole budget, whatever its size; with one it cannot."""
    rows = {row.name: row for row in prompts.rows}
    whole, usual = rows["whole prompts"], rows["chunks, budget 8192"]
    wide, narrow = rows["threshold 1024"], rows["threshold 256"]
    assert usual.short_ttft_p99.value > 0.7 * whole.short_ttft_p99.value
    assert narrow.short_ttft_p99.value < wide.short_ttft_p99.value < usual.short_ttft_p99.value / 4
    assert narrow.capacity.value > 0.95 * usual.capacity.value
    assert usual.long_ttft_p50.value < narrow.long_ttft_p50.value < 1.5 * usual.long_ttft_p50.value


def test_the_cause_is_scheduling_where_more_memory_changes_nothing(prompts: long_prompt.LongPrompt) -> None:
    cause = prompts.cause
    assert cause.roomy_p99 == cause.usual_p99 and not cause.is_memory
    assert "scheduling, not memory" in long_prompt_words.answer(prompts).text()


def test_the_cause_is_memory_where_long_prompts_fill_it() -> None:
    server = Server("L4")
    mix = long_prompt.mix_of(server, 600, 24_576)
    cause = long_prompt.cause_of(server, mix, 0)
    assert cause.is_memory and cause.roomy_p99 < 0.9 * cause.usual_p99


def test_a_prompt_in_chunks_takes_the_seconds_of_its_steps() -> None:
    class Plain:
        cost = Hosted(Linear(0.004, prefill=1e-5), 0.0, 0.0)

    total, longest, chunks = long_prompt.prompt_seconds(Plain(), 10, 100.0, 2500, 1010)  # type: ignore[arg-type]
    assert chunks == 3 and longest == pytest.approx(0.004 + 0.01)
    assert total == pytest.approx(3 * 0.004 + 2500e-5)


def test_the_budget_for_a_goal_is_the_greatest_that_keeps_it(prompts: long_prompt.LongPrompt) -> None:
    mix = long_prompt.mix_of(H100, 600, 24_576)
    running, context = long_prompt.residents(H100, mix)
    assert prompts.goal_budget is not None
    steps = [
        long_prompt.prompt_seconds(H100, running, context, 24_576, budget)[1]
        for budget in (prompts.goal_budget, prompts.goal_budget + long_prompt.TILE)
    ]
    assert steps[0] <= 0.05 < steps[1]
    assert long_prompt.budget_for(H100, mix, 0.005) is None


def test_a_client_beside_two_cold_prompts_gets_a_token_per_chunk() -> None:
    """A public report: 2400 tokens/s of prefill, budget 8192, two prompts of 72k: a token every 3.4 s."""
    load = Workload.from_columns([0.0, 5.0, 5.0], [100, 72_000, 72_000], [600, 10, 10], name="three")
    cost, limits = Linear(0.035, prefill=1 / 2400), Limits(max_num_batched_tokens=8192, max_model_len=80_000)
    found = {budget: _greatest_gap(load, cost, limits, budget) for budget in (8192, 1024)}
    assert found[8192] == pytest.approx(0.035 + 8191 / 2400, rel=1e-3)
    assert found[1024] == pytest.approx(0.035 + 1023 / 2400, rel=1e-3)


def _greatest_gap(load: Workload, cost: Linear, limits: Limits, budget: int) -> float:
    run = serve(f"vllm(max_num_batched_tokens={budget})", load, cost, limits)
    return float(run.gaps(np.array([0])).greatest[0])


def test_a_chunk_reads_what_came_before_it() -> None:
    step = with_chunk(3, 100.0, 64, 128, is_last=True)
    assert (step.prefill_tokens, step.num_chunks, step.past_tokens) == (64, 1, 128)
    assert (step.num_decodes, step.context_tokens, step.sampled_rows) == (3, 300, 4)
    assert step.prefill_attention == 64 * (128 + 32)


def test_a_fifth_long_prompt_thrashes_unless_its_whole_length_is_reserved() -> None:
    """Four of 100k tokens hold 90 % of the KV cache when the fifth comes, in chunks.

    20 ms a step and 50 us a prompt token.  Off: it is admitted while its first chunk fits, fills the rest,
    preempts itself and begins again, so nearly every step carries a chunk.
    """
    on, off = (_fifth(flag, caching=False) for flag in ("true", "false"))
    assert on[0] == 0 and off[0] > 1000
    assert on[1] > 10 * off[1]
    assert on[1] == pytest.approx(4 / 0.02, rel=0.02)


def test_the_fifth_waits_for_its_own_cached_blocks_where_prefixes_are_cached() -> None:
    preemptions, tokens_per_second = _fifth("false", caching=True)
    assert preemptions == 1 and tokens_per_second > 190


def _fifth(flag: str, caching: bool) -> tuple[int, float]:
    """Preemptions of the fifth request, and output tokens/s of the four others after it has come."""
    load = Workload.from_columns([0, 0, 0, 0, 25.0], [100_000] * 5, [8000] * 5, name="five")
    limits = Limits(
        max_num_batched_tokens=8192,
        num_kv_blocks=27_800,
        max_model_len=110_000,
        enable_prefix_caching=caching,
    )
    run = serve(f"vllm(scheduler_reserve_full_isl={flag})", load, Linear(0.02, prefill=5e-5), limits)
    columns = run.requests()
    return int(columns["preemptions"][4]), 4 * 8000 / float(columns["finished_s"][:4].max() - 25)


def test_a_budget_that_leaves_no_memory_is_told_and_the_others_are_served() -> None:
    """Without chunks the token budget is that of the longest request, whose activations take KV blocks."""
    server = Server("L4")
    mix = long_prompt.mix_of(server, 60, 24_576)
    whole, usual, *_ = long_prompt.ways(mix.longest, server.usual[1])
    row = long_prompt.row_of(server, mix, whole, range(1))
    assert "max_model_len 24832 cannot fit" in row.error and isnan(row.capacity.value)
    row = long_prompt.row_of(server, mix, usual, range(1))
    assert row.error == "" and row.capacity.value > 0


def test_where_memory_is_short_the_text_still_fits_and_says_so() -> None:
    text = long_prompt_words.answer(long_prompt.long_prompt(Server("L4"), requests=300, repeat=1)).text()
    assert "The cause is memory" in text and "know no memory" in text and "cannot" in text
    assert max(map(len, text.splitlines())) <= 100 and "…" not in text and "nan" not in text


# --- max-num-seqs -----------------------------------------------------------------------


def test_seats_serve_what_their_formula_says(queue: max_num_seqs.MaxNumSeqs) -> None:
    for row in queue.rows:
        assert row.capacity.value == pytest.approx(row.capacity_form, rel=0.07), row.max_num_seqs
    small = queue.rows[0]
    load = seats.load_of(2000, 1.0, 5)
    found = max_num_seqs.full(H100, load, small.max_num_seqs)["capacity"]
    assert found == pytest.approx(small.capacity_form, rel=0.03)


def test_under_the_rate_the_queue_grows_as_the_formula_says(queue: max_num_seqs.MaxNumSeqs) -> None:
    over = [row for row in queue.rows if not isnan(row.ttft_p99_form)]
    assert [row.max_num_seqs for row in over] == [16, 32, 64]
    for row in over[:2]:
        assert row.ttft_p99.value == pytest.approx(row.ttft_p99_form, rel=0.2), row.max_num_seqs
        assert row.waiting.value > 50
    enough = [row for row in queue.rows if row.max_num_seqs >= 128]
    assert all(row.ttft_p99.value < 0.5 for row in enough)


def test_the_formula_of_the_queue_is_that_of_seats_that_begin_together() -> None:
    """Two seats, 2 s for all, a request each 0.5 s: request i of 200, from 0, starts at 2 floor(i / 2)."""
    waits = [2.0 * (i // 2) - 0.5 * i for i in range(200)]
    found = max_num_seqs.queue_p99(200, 2.0, 1.0, seats=2, cv2=0.0)
    assert found == pytest.approx(np.percentile(waits, 99), abs=1.0) and found > 90
    assert isnan(max_num_seqs.queue_p99(100, 1.0, 1.0, 2, 0.0))


def test_memory_bounds_the_batch_from_the_wall_on(queue: max_num_seqs.MaxNumSeqs) -> None:
    for row in queue.rows:
        assert row.batch.value <= row.max_num_seqs
        assert row.is_bound_by_memory == (row.max_num_seqs == 1024)
        assert (row.preempted_full.value > 0) == (row.max_num_seqs > queue.wall)
    last = queue.rows[-1]
    assert queue.wall == pytest.approx(queue.kv_tokens / seats.resident_tokens())
    assert queue.wall < last.batch.value < 1.4 * queue.wall  # short contexts first, so more at the start


def test_a_resident_holds_more_than_the_mean_of_requests() -> None:
    """Long outputs are seen more often: E[s] + E[o (o - 1) / 2] / E[o], drawn here at random steps."""
    random = np.random.Generator(np.random.PCG64(3))
    outputs = np.arange(64, 513)
    chosen = random.choice(outputs, 200_000, p=outputs / outputs.sum())
    held = 640 + np.floor(random.random(200_000) * chosen)
    assert seats.resident_tokens() == pytest.approx(held.mean(), rel=0.002)
    assert seats.resident_tokens() > 640 + 288 / 2


def test_the_seats_that_are_needed_are_the_fewest(queue: max_num_seqs.MaxNumSeqs) -> None:
    assert queue.needed is not None and 64 < queue.needed <= 128
    assert seats.capacity(H100, queue.needed - 1) < queue.rate <= seats.capacity(H100, queue.needed)
    assert max_num_seqs.seats_needed(H100, 1000.0, queue.wall) is None


def test_a_rate_that_every_limit_serves_makes_no_queue(queue: max_num_seqs.MaxNumSeqs) -> None:
    said = max_num_seqs_words.answer(replace(queue, rate=0.001, needed=1))
    assert said.answer[0] == "0.00100 req/s need 1 seat: no limit here makes a queue."
    assert "; 0.00100 requests/s (Poisson)" in said.text()


def test_one_server_of_two_gpus_has_more_kv_than_two_servers(queue: max_num_seqs.MaxNumSeqs) -> None:
    fleets = {one.way: one for one in queue.fleets}
    assert fleets["2 x tp 1"].kv_tokens == 2 * fleets["tp 1"].kv_tokens
    assert fleets["tp 2"].kv_tokens > fleets["2 x tp 1"].kv_tokens  # the weights are there once
    assert fleets["tp 2"].tpot_p50.value < fleets["2 x tp 1"].tpot_p50.value
    assert fleets["8 x tp 1"].capacity.value > fleets["tp 8"].capacity.value


def test_where_weights_fill_the_gpus_tensor_parallelism_serves_more() -> None:
    server = Server(model="llama-3.1-70b", tp=2)
    loads = [seats.load_of(200, 4.0, 0)]
    wide = max_num_seqs.fleet(Server(model="llama-3.1-70b", tp=4), 1, loads, 4.0)
    two = max_num_seqs.fleet(server, 2, loads, 4.0)
    assert wide.kv_tokens > 5 * two.kv_tokens and wide.capacity.value > 2 * two.capacity.value


def test_what_cannot_be_split_is_told_and_not_left_out() -> None:
    found = max_num_seqs.fleet(Server("H100-SXM", "qwen2.5-7b", 8), 1, [seats.load_of(100, 4.0, 0)], 4.0)
    assert "heads" in found.error and found.kv_tokens == 0 and isnan(found.capacity.value)


# --- max-model-len ----------------------------------------------------------------------


def test_reserved_slots_are_whole_and_as_many_as_fit(lengths: max_model_len.MaxModelLen) -> None:
    orca = [row for row in lengths.rows if row.policy == "orca"]
    assert [row.max_model_len for row in orca] == [1024 << i for i in range(8)]
    for row in orca:
        assert row.batch.value == lengths.kv_tokens // row.max_model_len == row.batch_form
        assert row.bytes_each == row.max_model_len * 131_072  # bytes of KV of one token
    assert orca[0].shortened.value > 0.2 and all(row.shortened.value == 0 for row in orca[1:])


def test_waste_and_requests_per_second_are_those_of_the_formulas(lengths: max_model_len.MaxModelLen) -> None:
    for row in lengths.rows[1:]:
        assert row.waste.value == pytest.approx(row.waste_form, abs=0.01), row
        assert row.capacity.value == pytest.approx(row.capacity_form, rel=0.1), row
    assert isnan(lengths.rows[0].waste_form)


def test_lowering_it_buys_nothing_but_where_it_is_reserved(lengths: max_model_len.MaxModelLen) -> None:
    rows = {(row.policy, row.max_model_len): row for row in lengths.rows}
    for policy in ("vllm", "tensorrt_llm"):
        assert rows[policy, 2048].capacity.value == rows[policy, 131_072].capacity.value
        assert rows[policy, 2048].batch.value == rows[policy, 131_072].batch.value
    assert rows["orca", 2048].capacity.value > 10 * rows["orca", 131_072].capacity.value


def test_the_waste_of_one_request_is_counted_by_hand() -> None:
    """Prompt 20, output 3: 20, 21 and 22 tokens in 3 steps, of 2 blocks; orca takes 64 tokens of 3."""
    load = Workload.from_columns([0.0], [20], [3], name="one")
    limits = Limits(max_model_len=64, num_kv_blocks=4)
    paged = serve("vllm(async_scheduling=false)", load, Constant(1.0), limits)
    assert max_model_len.waste(paged) == pytest.approx(1 - (20 + 21 + 22) / (3 * 32))
    reserved = serve("orca", load, Constant(1.0), limits)
    assert max_model_len.waste(reserved) == pytest.approx(1 - (20 + 21 + 22) / (3 * 64))


@pytest.mark.parametrize(
    ("server", "said"),
    [(H100, "over max_position_embeddings 131072"), (Server("L4"), "cannot fit")],
)
def test_the_greatest_length_starts_and_one_more_does_not(server: Server, said: str) -> None:
    most = max_model_len.longest(server)
    assert max_model_len.refusal(server, most) == ""
    assert said in max_model_len.refusal(server, most + 1)


# --- the commands -----------------------------------------------------------------------

CASES: dict[str, tuple[Any, Any, list[str]]] = {
    "short-flood": (short_flood.short_flood, short_flood.UNITS, ["--requests", "100", "--repeat", "1"]),
    "long-prompt": (long_prompt.long_prompt, long_prompt.UNITS, ["--requests", "50", "--repeat", "1"]),
    "max-num-seqs": (max_num_seqs.max_num_seqs, max_num_seqs.UNITS, ["--requests", "100", "--tp", "8"]),
    "max-model-len": (max_model_len.max_model_len, max_model_len.UNITS, ["--requests", "100", "--gpu", "L4"]),
}
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["batchwright", "edge", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return end.value.code, printed.out, printed.err

    return run


@pytest.mark.parametrize("name", CASES)
def test_every_command_says_what_happens_why_and_what_to_do(name: str, command: Command) -> None:
    status, out, err = command(name, *CASES[name][2])
    assert status == 0 and err == ""
    lines = out.splitlines()
    assert len(lines) <= 48 and max(map(len, lines)) <= 100 and "…" not in out and "nan" not in out
    parts = [line for line in lines if line in ("What happens:", "Why:", "Answer:")]
    assert parts == ["What happens:", "Why:", "Answer:"]


@pytest.mark.parametrize("name", CASES)
def test_every_key_of_its_json_is_documented(name: str, command: Command) -> None:
    status, out, _ = command(name, *CASES[name][2], "--json")
    page = (ROOT / "docs" / "edge.md").read_text(encoding="utf-8")
    common = page.partition("Common to all:")[2].partition("\n### ")[0]
    section = page.partition(f"### `{name}`")[2].partition("\n### ")[0]
    assert status == 0 and set(paths(json.loads(out))) == set(KEY.findall(common + section))


def paths(value: Any, before: str = "") -> Iterator[str]:
    """Every key; an estimate is one entry, a list is its entries."""
    if isinstance(value, list):
        for item in value:
            yield from paths(item, before)
    elif isinstance(value, dict) and "low" not in value:
        for key, inner in value.items():
            yield from paths(inner, f"{before}.{key}" if before else key)
    else:
        yield before


def test_the_same_seed_gives_the_same_and_another_one_other_numbers() -> None:
    first, again, other = (
        as_json(max_model_len.max_model_len(Server("L4"), requests=100, seed=seed), max_model_len.UNITS)
        for seed in (0, 0, 1)
    )
    assert first == again and first["rows"] != other["rows"]


@pytest.mark.parametrize("make", [long_prompt.long_prompt, max_model_len.max_model_len])
def test_progress_is_told_up_to_the_end(make: Any) -> None:
    told: list[float] = []
    make(Server(tp=8), requests=100, repeat=1, report=told.append)
    assert told == sorted(told) and told[-1] == pytest.approx(1.0) and len(told) >= 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["short-flood", "--requests", "9"], "requests is 9; give a whole number of 100 to 200000"),
        (["long-prompt", "--repeat", "0"], "repeat is 0; give a whole number of 1 to 100"),
        (["long-prompt", "--long-tokens", "99"], "long_tokens is 99; give at least 1537"),
        (["max-num-seqs", "--rate", "0"], "rate is 0.0; give 1e-06 to 1e+06 requests/s"),
        (["max-model-len", "--seed", "-1"], "seed is -1; give a whole number of 0 to 4294967296"),
        (["long-prompt", "--itl", "5"], "--itl '5' is not a number and a unit"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(arguments: list[str], said: str, command: Command) -> None:
    status, _, err = command(*arguments)
    assert status == 2 and err.count("\n") == 1 and said in err


def test_a_server_that_cannot_hold_the_load_is_refused() -> None:
    with pytest.raises(LimitError):
        max_model_len.max_model_len(Server("T4"), requests=100)
    with pytest.raises(InputError):
        Server("H101").cost  # noqa: B018
