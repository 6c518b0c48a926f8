"""Files of client tools: what they say comes out in our definitions, and what contradicts itself is named."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from batchwright.errors import InputError
from batchwright.export import vllm_bench_result
from batchwright.imported import Imported, read
from batchwright.imported.folder import write as keep
from batchwright.imported.report import spreads, to_json
from client_files import COUNT, WRITERS, Client, changed, run_of, spoiled, write
from strategies import for_every_seed

pytestmark = pytest.mark.pure

DATA = Path(__file__).resolve().parent / "data" / "imported"
every_form = pytest.mark.parametrize("form", WRITERS)
WITH_GAPS = [form for form in WRITERS if "guidellm" not in form]
UNTIMED = ("sglang",)


@cache
def client() -> Client:
    return Client.of(run_of(7))


def wrong(found: Imported) -> list[str]:
    return [one.text for one in found.findings if one.is_wrong]


def notes(found: Imported) -> list[str]:
    return [one.text for one in found.findings if not one.is_wrong]


def column(found: Imported, name: str) -> Any:
    assert found.requests is not None
    return found.requests[name]


# --- what they say -----------------------------------------------------------------------


@every_form
@for_every_seed(6)
def test_every_form_of_a_run_is_the_run(
    tmp_path_factory: pytest.TempPathFactory, form: str, seed: int
) -> None:
    run = run_of(seed)
    file = write(tmp_path_factory.mktemp("it") / "file", form, WRITERS[form](Client.of(run)))
    found, own = read(file), run.requests()
    assert wrong(found) == []
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        np.testing.assert_allclose(column(found, name), own[name], rtol=1e-6, atol=2e-6)
    for name in ("prompt_tokens", "output_tokens"):
        np.testing.assert_array_equal(column(found, name), own[name])
    assert ("arrival_s" in (found.requests or {})) == (form not in UNTIMED)
    if form not in UNTIMED:
        np.testing.assert_allclose(column(found, "arrival_s"), own["arrival_s"], atol=2e-6)
        assert found.totals["duration_s"] == pytest.approx(np.nanmax(own["finished_s"]), rel=1e-5)
    assert (found.gaps is not None) == (form in WITH_GAPS)
    if found.gaps is not None:
        assert spreads(found)["itl_s"].p99 == pytest.approx(run.itl().p99, rel=1e-5)


def test_what_we_export_for_vllm_comes_back(tmp_path: Path) -> None:
    run = run_of(3)
    file = tmp_path / "result.json"
    file.write_text(vllm_bench_result(run, model="m").text)
    found = read(file)
    assert found.form == "batchwright export, as vllm bench serve, detailed JSON"
    assert wrong(found) == [] and found.about["model"] == "m"
    np.testing.assert_allclose(column(found, "ttft_s"), run.requests()["ttft_s"], atol=1e-8)


@pytest.mark.parametrize("form", [form for form in WRITERS if form not in UNTIMED])
def test_requests_come_in_order_of_arrival_whatever_the_order_of_the_file(tmp_path: Path, form: str) -> None:
    order = np.random.default_rng(1).permutation(COUNT).tolist()
    own = client()
    mixed = Client(
        [own.sent[i] for i in order], [own.prompt[i] for i in order], [own.tokens[i] for i in order]
    )
    found = read(write(tmp_path / "file", form, WRITERS[form](mixed)))
    assert column(found, "prompt_tokens").tolist() == own.prompt
    if found.gaps is not None:
        assert [len(one) for one in found.gaps] == [output - 1 for output in own.output]


# --- what breaks -------------------------------------------------------------------------

Change = Callable[[Any], None]


def scaled(key: str, factor: float) -> Change:
    def change(content: Any) -> None:
        values = content[key]
        if isinstance(values, list) and values and isinstance(values[0], list):
            content[key] = [[value * factor for value in one] for one in values]
        elif isinstance(values, list):
            content[key] = [type(value)(value * factor) for value in values]
        else:
            content[key] = values * factor

    return change


def both(*changes: Change) -> Change:
    def change(content: Any) -> None:
        for one in changes:
            one(content)

    return change


def half_of_the_gaps(content: Any) -> None:
    """Two tokens a chunk: every second gap is joined to the next."""
    content["itls"] = [[sum(gaps[i : i + 2]) for i in range(0, len(gaps), 2)] for gaps in content["itls"]]


def every_statistic(content: Any) -> None:
    for key in [key for key in content if key.endswith("_ms") and "ttft" not in key]:
        del content[key]


def late_first_tokens(content: Any) -> None:
    content["ttfts"][4] = content["latencies"][4] + 1.0


def guidellm_half(key: str) -> Change:
    def change(content: Any) -> None:
        for request in content["benchmarks"][0]["requests"]["successful"]:
            if request[key] is not None:
                request[key] /= 2

    return change


def guidellm_as_e2e_per_token(content: Any) -> None:
    for request in content["benchmarks"][0]["requests"]["successful"]:
        request["inter_token_latency_ms"] = request["time_per_output_token_ms"]


def aiperf_scaled(name: str, factor: float) -> Change:
    def change(content: Any) -> None:
        for record in content:
            found = record["metrics"].get(name)
            if found is not None:
                value = found["value"]
                found["value"] = (
                    [one * factor for one in value] if isinstance(value, list) else value * factor
                )

    return change


def aiperf_double_tokens(content: Any) -> None:
    for record in content:
        record["metrics"]["output_sequence_length"]["value"] *= 2


def inference_perf_counts_twice(content: Any) -> None:
    for entry in content:
        computed = entry["computed_metrics"]
        if computed["time_per_output_token"] is not None:
            computed["time_per_output_token"] /= 2


# form, what is changed, what is said of it with its number, what is left out
BREAKS: dict[str, tuple[str, Change, str, set[str]]] = {
    "half the mean TPOT": (
        "vllm",
        scaled("mean_tpot_ms", 0.5),
        r"^mean TPOT of the file, .*, is half of \(0.5 times\) that of its requests, \(E2E - TTFT\) / \(N",
        set(),
    ),
    "half the mean TPOT, older": (
        "vllm_before",
        scaled("mean_tpot_ms", 0.5),
        r"^mean TPOT of the file, .*, is half of \(0.5 times\)",
        set(),
    ),
    "TTFT in milliseconds": (
        "vllm",
        scaled("ttfts", 1000.0),
        r"^9[0-9.]+% of 60 requests have times that cannot be|^100.0% of 60",
        {"most"},
    ),
    "half the gaps in time": (
        "vllm",
        scaled("itls", 0.5),
        r"^the sum of ITL is half of \(0.5 times\) E2E - TTFT in 100.0% of",
        {"itl"},
    ),
    "half the gaps in time, older": (
        "vllm_before",
        scaled("itls", 0.5),
        r"^E2E, TPOT and ITL are left out: they rest on the gaps",
        {"itl", "tpot", "e2e"},
    ),
    "two tokens a chunk": (
        "vllm",
        half_of_the_gaps,
        r"^ITL is per chunk of [12]\.\d+ tokens in ",
        {"itl"},
    ),
    "twice the tokens": (
        "vllm",
        scaled("output_lens", 2),
        r"^the file counts [0-9,]+ output tokens, its requests [0-9,]+, half of \(0.5 times\) that",
        {"itl", "tpot"},
    ),
    "half the tokens": (
        "vllm",
        scaled("output_lens", 0.5),
        r"^there are [0-9,]+ gaps, but N - 1 is [0-9,]+ in sum, in ",
        {"itl", "tpot"},
    ),
    "half the duration": (
        "vllm",
        scaled("duration", 0.5),
        r"^duration .* is half of \(0.5 times\) the time from first sent",
        set(),
    ),
    "twice the throughput": (
        "vllm",
        scaled("request_throughput", 2.0),
        r"^requests/s of the file, .*, is twice \(2 times\) its count over its duration",
        set(),
    ),
    "a count that is not": (
        "vllm",
        scaled("completed", 2),
        r"^the file counts 120 completed requests, its requests 60, twice",
        set(),
    ),
    "a token after the end": (
        "vllm",
        late_first_tokens,
        r"^1 of 60 requests have times that cannot be, such as request 4: TTFT",
        set(),
    ),
    "Little's law": (
        "sglang",
        scaled("concurrency", 2.0),
        r"^Little's law: rate x mean E2E is .* but the file says",
        set(),
    ),
    "half ITL, SGLang": (
        "sglang",
        scaled("itls", 0.5),
        r"^mean ITL of the file, .*, is twice \(2 times\) that of its requests",
        {"itl", "tpot", "e2e"},
    ),
    "half the TPOT of GuideLLM": (
        "guidellm",
        guidellm_half("inter_token_latency_ms"),
        r"^inter_token_latency_ms is half of \(0.5 times\) \(E2E - TTFT\) / \(N - 1\) in 100.0% of",
        set(),
    ),
    "half the TPOT of older GuideLLM": (
        "guidellm_before",
        guidellm_half("inter_token_latency_ms"),
        r"^inter_token_latency_ms is half of \(0.5 times\) \(E2E - TTFT\) / \(N - 1\) in 100.0% of",
        set(),
    ),
    "a TPOT that counts the prefill": (
        "guidellm",
        guidellm_as_e2e_per_token,
        r"^inter_token_latency_ms is .* in .*: it is E2E / N, which counts the prefill",
        set(),
    ),
    "half the TTFT of GuideLLM": (
        "guidellm",
        guidellm_half("time_to_first_token_ms"),
        r"^time_to_first_token_ms is half of \(0.5 times\) TTFT in 100.0% of",
        set(),
    ),
    "half the ITL of AIPerf": (
        "aiperf",
        aiperf_scaled("inter_token_latency", 0.5),
        r"^inter_token_latency is half of \(0.5 times\) \(E2E - TTFT\) / \(N - 1\) in 100.0% of",
        set(),
    ),
    "twice the gaps of AIPerf": (
        "aiperf",
        aiperf_scaled("inter_chunk_latency", 2.0),
        r"^the sum of ITL is twice \(2 times\) E2E - TTFT in 100.0% of",
        {"itl"},
    ),
    "twice the tokens of AIPerf": (
        "aiperf",
        aiperf_double_tokens,
        r"^ITL is per chunk of 2\.\d+ tokens in [0-9.]+% of 60",
        {"itl"},
    ),
    "half the TPOT of inference-perf": (
        "inference_perf",
        inference_perf_counts_twice,
        r"^time_per_output_token is half of \(0.5 times\) \(E2E - TTFT\) / \(N - 1\) in 100.0% of",
        set(),
    ),
}


@pytest.mark.parametrize("name", BREAKS)
@for_every_seed(3)
def test_a_broken_identity_is_named_with_its_number(
    tmp_path_factory: pytest.TempPathFactory, name: str, seed: int
) -> None:
    form, change, said, left_out = BREAKS[name]
    file, whole = tmp_path_factory.mktemp("it") / "file", WRITERS[form](Client.of(run_of(seed)))
    assert wrong(read(write(file, form, whole))) == []
    found = read(write(file, form, changed(whole, change)))
    assert any(re.search(said, text) for text in wrong(found)), wrong(found)
    if left_out != {"most"}:
        have = {"ttft_s", "tpot_s", "e2e_s"} | ({"itl_s"} if form in WITH_GAPS else set())
        assert spreads(found).keys() == have - {f"{metric}_s" for metric in left_out}


SUMS = ("duration", "completed", "total_input_tokens", "total_output_tokens")
RATES = ("request_throughput", "output_throughput")
WORDS = {"vllm": ("ttft", "tpot", "itl", "e2el"), "sglang": ("ttft", "tpot", "itl", "e2e_latency")}
CLAIMS = [
    (form, key, what)
    for form, words in WORDS.items()
    for key, what in (
        *((f"{name}_{word}_ms", word[:3]) for word in words for name in ("mean", "median", "p90", "p99")),
        *((key, "file") for key in (*SUMS[1:], *RATES)),
    )
]


@pytest.mark.parametrize(("form", "key", "what"), CLAIMS, ids=[f"{form} {key}" for form, key, _ in CLAIMS])
@for_every_seed(2)
def test_any_sum_that_is_not_that_of_its_requests_is_named(
    tmp_path_factory: pytest.TempPathFactory, form: str, key: str, what: str, seed: int
) -> None:
    """SGLang's E2E and TPOT may be a little greater: they go to the end of the stream."""
    factor = [0.3, 0.97, 0.98 if form == "sglang" else 1.02, 2.5][seed % 4]
    whole = WRITERS[form](Client.of(run_of(seed)))
    broken = changed(whole, lambda content: content.__setitem__(key, content[key] * factor))
    found = wrong(read(write(tmp_path_factory.mktemp("it") / "file", form, broken)))
    assert any(what in text.lower() and f"{factor:.4g} times" in text for text in found), found


@pytest.mark.parametrize("form", WRITERS)
def test_where_every_request_failed_there_is_no_metric(tmp_path: Path, form: str) -> None:
    def fail(content: Any) -> None:
        if "vllm" in form or form == "sglang":
            for key in [key for key in content if key.endswith("_ms")]:
                content[key] = 0.0
            content |= {"completed": 0, "failed": COUNT, "errors": ["no"] * COUNT}
            content |= dict.fromkeys(("total_input_tokens", "total_output_tokens", *RATES), 0)
            content |= {"total_throughput": 0.0, "total_token_throughput": 0.0, "concurrency": 0.0}
        elif "guidellm" in form:
            requests = content["benchmarks"][0]["requests"]
            requests |= {"errored": requests["successful"], "successful": []}
        else:
            for one in content:
                one["error"] = {"message": "no"}

    found = read(write(tmp_path / "file", form, changed(WRITERS[form](client()), fail)))
    assert wrong(found) == [] and spreads(found) == {}
    assert notes(found)[0] == "60 of 60 requests did not complete, and are left out of all metrics"
    assert not column(found, "is_completed").any() and found.totals["output_tokens"] == 0.0


def test_a_few_odd_requests_take_only_their_own_gaps_along(tmp_path: Path) -> None:
    """Under 1 % of the requests: the others' ITL stays."""
    own = client()
    starts = [i * (own.duration + 5) for i in range(3)]
    many = Client(
        [start + sent for start in starts for sent in own.sent],
        own.prompt * 3,
        [[start + time for time in times] for start in starts for times in own.tokens],
    )
    content = WRITERS["aiperf"](many)
    longest = max(range(len(content)), key=lambda i: many.output[i])
    content[longest]["metrics"]["inter_chunk_latency"]["value"] = [1.0]
    found = read(write(tmp_path / "file", "aiperf", content))
    assert wrong(found) == [] and any("1 of" in text and "left out" in text for text in notes(found))
    assert found.gaps is not None and sum(len(one) == 0 for one in found.gaps) == 1 + sum(
        output == 1 for output in many.output
    )


# --- who decides when requests come ------------------------------------------------------


def closed_loop(cap: int, count: int = 60, seconds: float = 0.5, step: float = 0.01) -> Client:
    """`cap` clients, each of which sends when its last request has ended; lengths differ by client."""
    free = [0.002 * i for i in range(cap)]
    sent, tokens = [], []
    for i in range(count):
        who = min(range(cap), key=free.__getitem__)
        sent.append(free[who])
        steps = int(seconds / step) + 3 * (i % 7)
        tokens.append([sent[-1] + 0.1 + step * k for k in range(steps)])
        free[who] = tokens[-1][-1] + 0.001
    return Client(sent, [10] * count, tokens)


def timed(content: Any, rate: Any, cap: int | None) -> Any:
    return {**content, "request_rate": rate, "max_concurrency": cap}


def test_a_closed_loop_is_told_by_its_cap(tmp_path: Path) -> None:
    content = timed(WRITERS["vllm"](closed_loop(8)), "inf", 8)
    found = read(write(tmp_path / "file", "vllm", content))
    assert wrong(found) == []
    (said,) = [text for text in notes(found) if "closed loop" in text]
    assert said.startswith(
        "a closed loop (no rate was asked for): at most 8 requests are in flight, and 100.0%"
    )
    assert said.endswith("arrivals are really the client's cap, not a load of their own")


def test_a_closed_loop_is_found_where_no_cap_is_named(tmp_path: Path) -> None:
    content = WRITERS["inference_perf"](closed_loop(5))
    found = read(write(tmp_path / "file", "inference_perf", content))
    assert any("at most 5 requests are in flight" in text for text in notes(found))


def test_a_rate_that_the_cap_does_not_let_through_is_wrong(tmp_path: Path) -> None:
    own = closed_loop(4)
    content = timed(WRITERS["vllm"](own), 50.0, 4)
    found = read(write(tmp_path / "file", "vllm", content))
    (said,) = wrong(found)
    sent = (len(own.sent) - 1) / (max(own.sent) - min(own.sent))
    assert said.startswith(f"the client sent {sent:.2f} requests/s, {sent / 50:.4g} times the 50.0 that it")
    assert "arrivals are really its cap, not the load" in said


def test_more_in_flight_than_the_cap_is_wrong(tmp_path: Path) -> None:
    found = read(write(tmp_path / "a", "vllm", timed(WRITERS["vllm"](closed_loop(8)), "inf", 6)))
    assert any(
        text == "8 requests are in flight at once, over the client's cap of 6" for text in wrong(found)
    )
    content = timed(WRITERS["sglang"](closed_loop(8)), "inf", 6)
    found = read(write(tmp_path / "b", "sglang", content))
    assert any("Little's law" in text and "over the client's cap of 6" in text for text in wrong(found))


def test_a_poisson_load_is_no_closed_loop(tmp_path: Path) -> None:
    content = timed(WRITERS["vllm"](client()), 8.0, 64)
    found = read(write(tmp_path / "file", "vllm", content))
    assert found.findings == ()


def answered(sent: list[float], seconds: list[float]) -> Client:
    """Requests that take so long, 20 tokens each."""
    tokens = [
        np.linspace(at + each / 4, at + each, 20).tolist() for at, each in zip(sent, seconds, strict=True)
    ]
    return Client(sent, [10] * len(sent), tokens)


@pytest.mark.parametrize("cap", [None, 500])
@for_every_seed(20)
def test_an_open_load_is_no_closed_loop_however_many_are_in_flight(
    tmp_path_factory: pytest.TempPathFactory, cap: int | None, seed: int
) -> None:
    """At an even pace or a random one, of 1 to 200 in flight, nearly alike or not."""
    random = Random(seed)
    rate, length, spread = (
        random.choice([2, 10, 50]),
        random.choice([0.3, 1.1, 3.9]),
        random.choice([0.0, 0.3]),
    )
    is_even = random.random() < 0.5
    gaps = [1 / rate if is_even else random.expovariate(rate) for _ in range(400)]
    sent = np.cumsum(gaps).tolist()
    own = answered(sent, [length * random.uniform(1 - spread, 1 + spread) for _ in sent])
    content = {**timed(WRITERS["vllm"](own), rate, cap), "burstiness": "inf" if is_even else 1.0}
    found = read(write(tmp_path_factory.mktemp("it") / "file", "vllm", content))
    assert found.findings == ()


@pytest.mark.parametrize("clients", [1, 3, 32, 128])
@pytest.mark.parametrize("names_it", [True, False])
def test_a_closed_loop_of_any_size_is_found(tmp_path: Path, clients: int, names_it: bool) -> None:
    random, free = Random(clients), [0.001 * i for i in range(clients)]
    sent, seconds = [], []
    for _ in range(10 * clients + 20):
        who = min(range(clients), key=free.__getitem__)
        sent.append(free[who])
        seconds.append(random.uniform(1.0, 3.0))
        free[who] += seconds[-1] + random.uniform(1e-4, 2e-3)
    content = timed(WRITERS["vllm"](answered(sent, seconds)), "inf", clients if names_it else None)
    (said,) = [text for text in notes(read(write(tmp_path / "file", "vllm", content))) if "closed" in text]
    assert f"at most {clients} " in said


def test_a_queue_that_grows_is_told_by_the_rates(tmp_path: Path) -> None:
    """One server, 50 requests/s come, 10 are served."""
    sent = [0.02 * i for i in range(60)]
    tokens = [[0.1 * (i + 1), 0.1 * (i + 1) + 0.01] for i in range(60)]
    content = timed(WRITERS["vllm"](Client(sent, [5] * 60, tokens)), 50.0, None)
    (said,) = notes(read(write(tmp_path / "file", "vllm", content)))
    assert said.startswith("50.0 requests/s were sent, 9.98 served (0.1997 times), and TTFT grew")


def test_an_answer_in_one_piece_has_no_ttft(tmp_path: Path) -> None:
    """What SGLang writes with --disable-stream: TTFT is E2E."""
    own = client()
    content = WRITERS["vllm"](
        Client(own.sent, own.prompt, [[times[-1]] * len(times) for times in own.tokens])
    )
    found = read(write(tmp_path / "file", "vllm", content))
    assert spreads(found).keys() == {"e2e_s"}
    assert any("in one piece" in text for text in notes(found))


@every_form
@for_every_seed(40)
def test_whatever_a_file_says_it_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, form: str, seed: int
) -> None:
    random, own = Random(seed), client()
    few = Client(own.sent[:5], own.prompt[:5], own.tokens[:5])
    content = spoiled(WRITERS[form](random.choice([own, few])), random)
    folder = tmp_path_factory.mktemp("it")
    try:
        found = read(write(folder / "file", form, content))
    except InputError as error:
        assert str(error).startswith(str(folder)) and "\n" not in str(error)
    else:
        json.dumps(to_json(found), allow_nan=False)
        keep(folder / "kept", found)
        assert to_json(read(folder / "kept")) == to_json(found)


@pytest.mark.parametrize("settings", [None, [], {"phases": 3, "models": [1]}, {"models": {"items": [4]}}])
def test_settings_of_aiperf_of_another_shape_tell_nothing(tmp_path: Path, settings: Any) -> None:
    file = write(tmp_path / "file", "aiperf", WRITERS["aiperf"](client()))
    (tmp_path / "profile_export_aiperf.json").write_text(json.dumps({"input_config": settings}))
    assert not read(file).about.keys() & {"model", "request_rate", "max_concurrency"}


@pytest.mark.parametrize("stages", ["3", "[1, {rate: -.inf}]", "{rate: 2}"])
def test_stages_of_inference_perf_of_another_shape_tell_no_rate(tmp_path: Path, stages: str) -> None:
    file = write(tmp_path / "file", "inference_perf", WRITERS["inference_perf"](client()))
    (file.parent / "config.yaml").write_text(f"load:\n  stages: {stages}\n")
    assert "request_rate" not in read(file).about


def test_a_sum_that_no_float_holds_is_none(tmp_path: Path) -> None:
    content = changed(WRITERS["vllm"](client()), lambda it: it.update(mean_ttft_ms=10**400))
    assert wrong(read(write(tmp_path / "file", "vllm", content))) == []


def test_two_requests_have_one_gap_and_one_has_none(tmp_path: Path) -> None:
    own = client()
    for count in (1, 2):
        few = Client(own.sent[:count], own.prompt[:count], own.tokens[:count])
        content = WRITERS["inference_perf"](few)
        (tmp_path / f"{count}").mkdir()
        file = write(tmp_path / f"{count}" / "file", "inference_perf", content)
        (file.parent / "config.yaml").write_text("load: {stages: [{rate: 3.0, concurrency_level: 1}]}\n")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len(column(read(file), "ttft_s")) == count


def test_gaps_that_sglang_split_evenly_are_told(tmp_path: Path) -> None:
    """Chunks of two tokens, each gap written twice, half as long: all sums still hold."""
    own = client()
    content = WRITERS["sglang"](own)
    content["itls"] = [[each / 2 for gap in gaps for each in (gap, gap)] for gaps in content["itls"]]
    content["output_lens"] = [1 + len(gaps) for gaps in content["itls"]]
    for key in [key for key in content if "tpot" in key or "itl" in key or "output_t" in key]:
        if key != "itls":
            content.pop(key)
    content["total_output_tokens_retokenized"] = 0
    found = read(write(tmp_path / "file", "sglang", content))
    gaps = [(before, gap) for one in content["itls"] for before, gap in pairwise(one)]
    part = sum(before == gap for before, gap in gaps) / sum(map(len, content["itls"]))
    assert part > 0.5  # and a few by chance
    assert any(text.startswith(f"{part:.1%} of the gaps are exactly the one before") for text in notes(found))


def test_records_of_a_warm_up_are_left_out_and_counted(tmp_path: Path) -> None:
    content = WRITERS["aiperf"](client())
    for record in content[:7]:
        record["metadata"]["benchmark_phase"] = "warmup"
    found = read(write(tmp_path / "file", "aiperf", content))
    assert len(column(found, "ttft_s")) == COUNT - 7 and column(found, "arrival_s")[0] == 0.0
    assert notes(found)[0].startswith("7 records of the warm-up are left out")
    all_of_it = [
        {**record, "metadata": {**record["metadata"], "benchmark_phase": "warmup"}} for record in content
    ]
    with pytest.raises(InputError, match="has 60 records, all of the warm-up"):
        read(write(tmp_path / "file", "aiperf", all_of_it))


def test_stages_of_inference_perf_are_taken_as_one_run_and_said(tmp_path: Path) -> None:
    write(tmp_path / "file", "inference_perf", WRITERS["inference_perf"](client()))
    stages = "load: {type: constant, stages: [{rate: 1, duration: 5}, {rate: 2, duration: 5}]}"
    (tmp_path / "config.yaml").write_text(stages)
    found = read(tmp_path / "file")
    assert wrong(found) == [] and any("which of the 2 stages" in text for text in notes(found))


def test_where_the_server_counts_too_its_tokens_are_taken(tmp_path: Path) -> None:
    """The client finds a token more in every answer, and none of the chat template in a prompt."""
    own, content = client(), WRITERS["aiperf"](client())
    for i, record in enumerate(content):
        metrics = record["metrics"]
        metrics["usage_prompt_tokens"] = {"value": own.prompt[i] + 30, "unit": "tokens"}
        metrics["usage_completion_tokens"] = {"value": own.output[i], "unit": "tokens"}
        metrics["output_sequence_length"]["value"] += 1
    found = read(write(tmp_path / "file", "aiperf", content))
    assert column(found, "prompt_tokens").tolist() == [prompt + 30 for prompt in own.prompt]
    assert column(found, "output_tokens").tolist() == own.output and wrong(found) == []
    prompt, output = sum(own.prompt), sum(own.output)
    assert [text.partition(" (")[0] for text in notes(found)] == [
        f"the client counts {prompt:,} prompt tokens, the server {prompt + 30 * COUNT:,}",
        f"the client counts {output + COUNT:,} output tokens, the server {output:,}",
    ]


def test_a_prompt_that_was_cached_is_a_column(tmp_path: Path) -> None:
    content = WRITERS["guidellm"](client())
    for i, request in enumerate(content["benchmarks"][0]["requests"]["successful"]):
        request["cached_tokens"] = 16 * (i % 3)
    found = read(write(tmp_path / "file", "guidellm", content))
    assert column(found, "cached_tokens").tolist() == [16 * (i % 3) for i in range(COUNT)]


# --- files as the tools wrote them -------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "run", "form", "metrics", "said"),
    [
        (
            "vllm_bench.json",
            None,
            "vllm bench serve, detailed JSON of 0.32 or later",
            "ttft tpot itl e2e",
            [],
        ),
        ("guidellm.json", None, "GuideLLM 0.8.1, JSON report", "ttft tpot e2e", ["one gap", "closed loop"]),
        ("guidellm_mock.json", "0", "GuideLLM 0.8.1, JSON report", "ttft tpot e2e", []),
        (
            "guidellm_mock.json",
            "poisson 20/s",
            "GuideLLM 0.8.1, JSON report",
            "ttft tpot e2e",
            ["5 of 20 requests did not complete"],
        ),
        (
            "guidellm_0.2.json",
            None,
            "GuideLLM before 0.4, JSON report",
            "ttft tpot e2e",
            ["the client sent 20.4 requests/s, 2.041 times the 10.0 that it was asked for"],
        ),
        (
            "aiperf/profile_export.jsonl",
            None,
            "AIPerf 0.13.0, JSONL records",
            "ttft tpot itl e2e",
            ["one gap", "closed loop", "in the client before"],
        ),
        (
            "aiperf_chat/profile_export.jsonl",
            None,
            "AIPerf 0.13.0, JSONL records",
            "ttft tpot itl e2e",
            [
                "3 records of the warm-up",
                "the client counts 1,280 prompt tokens, the server 1,880 (0.6809 times); they differ in 20",
                "the client counts 332 output tokens, the server 320 (1.038 times); they differ in 7 of 20",
                "one gap",
                "inter_token_latency is 0.9375 times (E2E - TTFT) / (N - 1) in 7 of 20 requests",
            ],
        ),
        (
            "sglang_bench.jsonl",
            "1",
            "SGLang bench_serving, JSONL with details",
            "ttft tpot itl e2e",
            ["one gap", "no arrivals", "closed loop"],
        ),
        (
            "inference_perf/per_request_lifecycle_metrics.json",
            None,
            "inference-perf, per-request JSON",
            "ttft tpot itl e2e",
            ["the client counts 329 output tokens", "one gap", "time_per_output_token is 0.9375 times"],
        ),
    ],
)
def test_a_file_of_the_tool_itself_is_read(
    file: str, run: str | None, form: str, metrics: str, said: list[str]
) -> None:
    found = read(DATA / file, run)
    assert found.form == form
    assert list(spreads(found)) == [f"{name}_s" for name in metrics.split()]
    texts = [one.text for one in found.findings]
    assert len(texts) == len(said) and all(part in text for part, text in zip(said, texts, strict=True)), (
        texts
    )
    assert len(column(found, "ttft_s")) == 20


def test_the_statistics_are_those_that_the_tools_print() -> None:
    of_vllm, of_aiperf = read(DATA / "vllm_bench.json"), read(DATA / "aiperf" / "profile_export.jsonl")
    own = json.loads((DATA / "vllm_bench.json").read_text())
    for name, metric in (("ttft", "ttft_s"), ("tpot", "tpot_s"), ("itl", "itl_s"), ("e2el", "e2e_s")):
        assert 1000 * spreads(of_vllm)[metric].mean == pytest.approx(own[f"mean_{name}_ms"])
        assert 1000 * spreads(of_vllm)[metric].p99 == pytest.approx(own[f"p99_{name}_ms"])
    own = json.loads((DATA / "aiperf" / "profile_export_aiperf.json").read_text())
    for name, metric in (("time_to_first_token", "ttft_s"), ("inter_token_latency", "tpot_s")):
        assert 1000 * spreads(of_aiperf)[metric].p90 == pytest.approx(own[name]["p90"])


def test_of_several_runs_one_is_chosen() -> None:
    with pytest.raises(
        InputError, match=r"2 runs; choose one with --run \(0: poisson 10/s; 1: poisson 20/s\)"
    ):
        read(DATA / "guidellm_mock.json")
    with pytest.raises(InputError, match="has no run '7'; choose one of 0: poisson 10/s"):
        read(DATA / "guidellm_mock.json", "7")


@pytest.mark.parametrize(
    ("form", "change", "said"),
    [
        ("vllm", lambda it: it.pop("itls"), "is no whole result of vllm bench serve: .*itls"),
        ("vllm", lambda it: it.pop("ttfts"), "has sums alone; run the tool with --save-detailed"),
        ("vllm", lambda it: it["ttfts"].pop(), "has 59 ttfts, but 60 input_lens"),
        ("vllm", lambda it: it["ttfts"].append("x"), "Expected float, got str"),
        ("sglang", lambda it: it.pop("ttfts"), "has sums alone; run the tool with --output-details"),
        ("aiperf", lambda it: it[3]["metadata"].pop("request_start_ns"), "row 4: is no whole AIPerf record"),
        (
            "aiperf",
            lambda it: it[3]["metrics"]["request_latency"].update(unit="min"),
            "file: request_latency is in 'min'",
        ),
        (
            "aiperf",
            lambda it: it[3]["metrics"]["request_latency"].update(value=10**400),
            "file: request_latency is a number that no clock tells",
        ),
        ("inference_perf", lambda it: it[1].pop("info"), "is no whole per-request report of inference-perf"),
        (
            "guidellm",
            lambda it: it["benchmarks"][0]["requests"]["successful"][0]["info"].pop("timings"),
            "is no whole GuideLLM report: .*timings",
        ),
    ],
    ids=[
        "no itls",
        "no ttfts",
        "short",
        "text",
        "sglang sums",
        "aiperf",
        "unit",
        "beyond floats",
        "inference-perf",
        "guidellm",
    ],
)
def test_a_file_that_is_not_whole_is_one_line(tmp_path: Path, form: str, change: Change, said: str) -> None:
    file = write(tmp_path / "file", form, changed(WRITERS[form](client()), change))
    with pytest.raises(InputError, match=said) as error:
        read(file)
    assert "\n" not in str(error.value)


def test_a_benchmark_is_a_load_that_can_be_served_again() -> None:
    """The same requests at the same instants, in `compare` as any trace."""
    from batchwright.scenario.build import prepare
    from batchwright.scenario.text import read as read_scenario

    path = Path(__file__).parent / "data" / "imported" / "vllm_bench.json"
    found = read(path).requests
    assert found is not None
    load = prepare(read_scenario(str(path), {"policies": "vllm"})).load
    order = np.argsort(found["first_token_s"] - found["ttft_s"], kind="stable")
    assert load.prompt.tolist() == found["prompt_tokens"][order].tolist()
    assert load.output.tolist() == found["output_tokens"][order].tolist()
    assert load.arrival[0] == 0.0 and np.diff(load.arrival).min() >= 0.0
