"""/metrics of vLLM and SGLang: written by prometheus-client, read by its parser."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.errors import InputError
from batchwright.imported import Imported, prometheus, read
from batchwright.imported.histogram import Histogram
from batchwright.imported.report import to_json
from batchwright.imported.server_report import table
from batchwright.imported.source import Source

prometheus_client = pytest.importorskip("prometheus_client")
pytestmark = pytest.mark.pure

REAL = Path(__file__).resolve().parent / "data" / "imported" / "servers" / "vllm_metrics.txt.gz"
BUCKETS = (0.1, 0.2, 0.5, 1.0, 2.0)


class Server:
    """Metrics of a server whose requests all take the same times."""

    def __init__(self, prefix: str = "vllm", model: str = "m", engines: Sequence[str] = ("0",)) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        self.labels = [{"model_name": model, "engine": engine} for engine in engines]
        self.prefix = prefix
        self.made: dict[str, object] = {}

    def _one(self, kind: str, name: str, labels: dict[str, str], **options: object) -> object:
        if name not in self.made:
            maker = getattr(prometheus_client, kind)
            names = list(labels)
            self.made[name] = maker(f"{self.prefix}:{name}", "doc", names, registry=self.registry, **options)
        return self.made[name].labels(**labels)  # type: ignore[attr-defined]

    def count(self, name: str, amount: float) -> None:
        for labels in self.labels:
            self._one("Counter", name, labels).inc(amount)  # type: ignore[attr-defined]

    def gauge(self, name: str, value: float, **more: str) -> None:
        for labels in self.labels:
            self._one("Gauge", name, {**labels, **more}).set(value)  # type: ignore[attr-defined]

    def observe(self, name: str, *values: float, buckets: Sequence[float] = BUCKETS) -> None:
        for labels in self.labels:
            for value in values:
                self._one("Histogram", name, labels, buckets=buckets).observe(value)  # type: ignore[attr-defined]

    def serve(self, requests: int, queue: float = 0.25, prefill: float = 0.125, decode: float = 1.5) -> None:
        """So many requests of 10 output tokens, end to end 0.125 s longer than in the engine."""
        for _ in range(requests):
            self.observe("request_queue_time_seconds", queue)
            self.observe("request_prefill_time_seconds", prefill)
            self.observe("request_decode_time_seconds", decode)
            self.observe("request_inference_time_seconds", prefill + decode)
            self.observe("e2e_request_latency_seconds", queue + prefill + decode + 0.125)
            self.observe("time_to_first_token_seconds", queue + prefill)
            self.observe("inter_token_latency_seconds", *[decode / 9] * 9)
            self.observe("request_generation_tokens", 10, buckets=(5, 20))
        self.count("generation_tokens", 10 * requests)
        self.count("request_success", requests)

    def state(self, running: int, waiting: int = 0, usage: float = 0.5) -> None:
        self.gauge("num_requests_running", running)
        self.gauge("num_requests_waiting", waiting)
        self.gauge("kv_cache_usage_perc", usage)

    def text(self) -> str:
        found: str = prometheus_client.generate_latest(self.registry).decode()
        return found


def metrics(tmp_path: Path, *scrapes: str) -> Imported:
    file = tmp_path / "metrics.txt"
    file.write_text("".join(scrapes))
    return read(file)


def texts(found: Imported, is_wrong: bool | None = None) -> list[str]:
    return [one.text for one in found.findings if is_wrong is None or one.is_wrong == is_wrong]


# --- a real server --------------------------------------------------------------------------


def test_the_metrics_of_a_real_server_are_those_of_its_run() -> None:
    found = read(REAL)
    assert found.about == {
        "engine": "vllm", "model": "tiny", "num_gpu_blocks": 14, "block_size": 32, "kv_tokens": 448,
        "gpu_memory_utilization": 0.92, "enable_prefix_caching": True,
    }  # fmt: skip
    totals = found.totals
    assert (totals["num_completed"], totals["preemptions"]) == (24, 20)
    assert totals["ttft_s.mean"] == pytest.approx(totals["queue_s.mean"] + totals["prefill_s.mean"], rel=0.1)
    assert found.series is not None and len(found.series["time_s"]) == 13
    assert (np.diff(found.series["time_s"]) > 0).all() and (np.diff(found.series["output_tokens"]) >= 0).all()
    assert texts(found, is_wrong=True) == []
    assert texts(found)[0].startswith("mean E2E 2.04 s = queue 1.15 s + inference 880 ms + front end 12.5 ms")


# --- windows and labels ---------------------------------------------------------------------


def test_one_scrape_counts_from_the_start_and_several_from_the_first(tmp_path: Path) -> None:
    server = Server()
    server.serve(4)
    server.state(0)
    first = server.text()
    server.serve(6)
    one, both = metrics(tmp_path, server.text()), metrics(tmp_path, first, server.text())
    assert (one.totals["num_completed"], both.totals["num_completed"]) == (10, 6)
    assert both.totals["output_tokens"] == 60 and both.totals["e2e_s.mean"] == pytest.approx(2.0)
    assert one.series is None and both.series is not None
    assert both.series["num_completed"].tolist() == [0, 6]
    assert any("since the server started" in text for text in one.conventions)


@pytest.mark.parametrize(
    "line", ["1796073395.5", "2026-11-30T21:16:35.5Z", "# time: 2026-11-30T21:16:35.5+00:00"]
)
def test_a_line_before_a_scrape_tells_its_time(tmp_path: Path, line: str) -> None:
    server = Server()
    server.serve(4)
    server.state(1)
    first = server.text()
    server.serve(6)
    found = metrics(tmp_path, f"{line}\n", first, "1796073398.5\n", server.text())
    assert found.totals["duration_s"] == pytest.approx(3.0)
    assert found.totals["requests_per_s"] == pytest.approx(2.0)
    assert found.series is not None and found.series["time_s"].tolist() == pytest.approx([0.0, 3.0])


def test_a_folder_of_scrapes_is_read_in_the_order_of_names_that_tell_their_time(tmp_path: Path) -> None:
    server = Server()
    for seconds in (1796073395, 1796073399):
        server.serve(2)
        server.state(0)
        (tmp_path / f"scrape-{seconds}.prom").write_text(server.text())
    (tmp_path / "readme.txt").write_text("of a test\n")
    found = read(tmp_path)
    assert found.totals["num_completed"] == 2 and found.totals["duration_s"] == 4


def test_scrapes_are_read_in_order_of_time_and_their_names_by_the_numbers_in_them(tmp_path: Path) -> None:
    server, made = Server(), []
    for _ in range(3):
        server.serve(2)
        server.state(0)
        made.append(server.text())
    assert metrics(tmp_path, f"1700000009\n{made[2]}1700000000\n{made[0]}").totals["requests_per_s"] == 4 / 9
    folder = tmp_path / "scrapes"
    folder.mkdir()
    for number, text in zip((1, 2, 10), made, strict=True):
        (folder / f"m{number}.txt").write_text(text)
    found = read(folder)
    assert found.totals["num_completed"] == 4 and texts(found)[0].startswith("mean E2E")


def test_scrapes_of_the_same_second_have_counts_and_no_rates(tmp_path: Path) -> None:
    server = Server()
    before = server.serve(2) or server.state(0) or server.text()
    server.serve(2)
    totals = metrics(tmp_path, f"1700000000\n{before}1700000000\n{server.text()}").totals
    assert totals["num_completed"] == 2 and not totals.keys() & {"duration_s", "requests_per_s"}


@pytest.mark.parametrize(
    ("is_line", "change", "said"),
    [
        ("vllm:generation_tokens_total{", ("20.0", "nan"), "vllm:generation_tokens_total is nan"),
        ("vllm:generation_tokens_total{", ("20.0", "-20.0"), "vllm:generation_tokens_total is -20"),
        ("vllm:time_to_first_token_seconds_sum{", ("0.75", "+Inf"), "seconds_sum is inf"),
        ("vllm:time_to_first_token_seconds_bucket{", ('le="0.5"', 'le="half"'), "has the limit 'half'"),
        ("vllm:time_to_first_token_seconds_bucket{", ('le="0.5"', 'le="nan"'), "has the limit 'nan'"),
    ],
    ids=["nan", "negative", "infinite", "limit", "limit nan"],
)
def test_what_cannot_have_been_counted_is_refused(
    tmp_path: Path, is_line: str, change: tuple[str, str], said: str
) -> None:
    server = Server()
    server.serve(2)
    lines = server.text().splitlines(keepends=True)
    assert any(line.startswith(is_line) and change[0] in line for line in lines)
    with pytest.raises(InputError, match=said):
        metrics(tmp_path, *(line.replace(*change) if line.startswith(is_line) else line for line in lines))


def test_comments_may_be_missing_and_other_metrics_are_left_alone(tmp_path: Path) -> None:
    server = Server()
    server.serve(3)
    bare = "".join(f"{line}\n" for line in server.text().splitlines() if line[0] != "#")
    found = metrics(tmp_path, "process_open_fds 7.0\n", bare, "process_open_fds 8.0\n", bare)
    assert found.totals["num_completed"] == 0 and found.series is not None
    assert len(found.series["num_completed"]) == 2


def test_engines_of_one_server_add_up_but_shares_do_not(tmp_path: Path) -> None:
    server = Server(engines=("0", "1"))
    server.serve(4)
    server.state(3, usage=0.75)
    other = server.text()
    found = metrics(tmp_path, other, other)
    assert found.series is not None and found.series["running"].tolist() == [6, 6]
    assert found.series["kv_usage"].tolist() == [0.75, 0.75]
    assert metrics(tmp_path, other).totals["num_completed"] == 8


def test_several_models_need_a_choice(tmp_path: Path) -> None:
    one, other = Server(model="a"), Server(model="b")
    one.serve(1)
    other.serve(2)
    file = tmp_path / "metrics.txt"
    file.write_text(one.text() + "".join(f"{line}\n" for line in other.text().splitlines() if line[0] != "#"))
    with pytest.raises(InputError, match=r"holds 2 runs; choose one with --run \(0: a; 1: b\)"):
        read(file)
    assert read(file, "b").totals["num_completed"] == 2


def test_sglang_has_other_names_for_the_same(tmp_path: Path) -> None:
    server = Server("sglang")
    server.observe("time_to_first_token_seconds", 0.25, 0.75)
    server.observe("e2e_request_latency_seconds", 2.0, 3.0)
    server.observe("time_per_output_token_seconds", 0.25)  # ITL, as 0.4 calls it
    server.count("num_requests", 2)
    server.count("generation_tokens", 40)
    server.count("num_retracted_requests", 3)
    for name, value in (("num_running_reqs", 2), ("num_queue_reqs", 1), ("token_usage", 0.25)):
        server.gauge(name, value)
    server.gauge("max_total_num_tokens", 5000)
    server.gauge("page_size", 1)
    found = metrics(tmp_path, server.text(), server.text())
    assert found.about == {"engine": "sglang", "model": "m", "kv_tokens": 5000, "block_size": 1}
    assert found.series is not None and found.series["waiting"].tolist() == [1, 1]
    once = metrics(tmp_path, server.text())
    assert once.totals["preemptions"] == 3 and once.totals["itl_s.mean"] == 0.25
    assert once.totals["ttft_s.mean"] == 0.5 and once.totals["e2e_s.mean"] == 2.5


def test_ranks_that_share_the_work_are_counted_once_and_priorities_together(tmp_path: Path) -> None:
    rows = [
        f'sglang:{name}{{dp_rank="{dp}",tp_rank="{tp}",pp_rank="0",priority="{priority}"}} {value}'
        for name, value in (("num_running_reqs", 5), ("num_requests_total", 7))
        for dp, tp in ((0, 0), (0, 1), (1, 2), (1, 3))
        for priority in ("", "0", "1")
    ]
    text = "\n".join(rows) + "\n"
    found = metrics(tmp_path, text, text)
    assert found.series is not None and found.series["running"].tolist() == [10, 10]
    assert metrics(tmp_path, text).totals["num_completed"] == 14


def test_requests_that_were_aborted_are_no_completed_ones(tmp_path: Path) -> None:
    rows = [
        f'vllm:request_success_total{{finished_reason="{reason}"}} {count}'
        for reason, count in (("stop", 5), ("length", 2), ("abort", 3), ("error", 1))
    ]
    totals = metrics(tmp_path, "\n".join(rows) + "\n").totals
    assert (totals["num_completed"], totals["num_failed"]) == (7, 4)


# --- identities -----------------------------------------------------------------------------


def test_the_parts_of_a_request_add_up_and_the_front_end_is_the_rest(tmp_path: Path) -> None:
    server = Server()
    server.serve(10)
    server.state(0)
    found = metrics(tmp_path, server.text())
    assert texts(found, is_wrong=True) == []
    assert texts(found) == [
        "mean E2E 2.00 s = queue 250 ms + inference 1.62 s + front end 125 ms, which a model of the "
        "engine does not have"
    ]


def test_a_queue_that_does_not_fit_into_e2e_is_wrong(tmp_path: Path) -> None:
    server = Server()
    server.serve(10)
    server.observe("request_queue_time_seconds", *[4.0] * 10)
    (wrong,) = texts(metrics(tmp_path, server.text()), is_wrong=True)
    assert wrong == "queue + inference is 3.75 s on average, but E2E 2.00 s"


def test_prefill_and_decode_that_are_not_inference_are_wrong(tmp_path: Path) -> None:
    server = Server()
    server.serve(10)
    server.observe("request_prefill_time_seconds", *[1.125] * 10)
    assert any(
        text == "prefill + decode is 2.12 s on average, but inference 1.62 s"
        for text in texts(metrics(tmp_path, server.text()), is_wrong=True)
    )


def test_gaps_that_are_not_the_decode_times_are_wrong_once_nobody_is_left(tmp_path: Path) -> None:
    server = Server()
    server.serve(10)
    server.observe("inter_token_latency_seconds", 15.0)
    server.state(1)
    assert texts(metrics(tmp_path, server.text()), is_wrong=True) == []  # it may be of the one that runs
    server.state(0)
    (wrong,) = texts(metrics(tmp_path, server.text()), is_wrong=True)
    assert wrong == "all gaps between tokens are 30.0 s, but all decode times 15.0 s"


def test_tokens_of_requests_that_were_aborted_are_told(tmp_path: Path) -> None:
    server = Server()
    server.serve(10)
    server.count("generation_tokens", 7)
    server.state(0)
    assert any(
        text.startswith("107 output tokens are counted, but requests ended with 100")
        for text in texts(metrics(tmp_path, server.text()))
    )


@pytest.mark.parametrize(("running", "holds"), [(10, False), (3, True)])
def test_littles_law_holds_between_scrapes_and_requests(tmp_path: Path, running: int, holds: bool) -> None:
    server = Server()
    text = ""
    for second in range(10):
        server.serve(2)  # a second; each is in the engine for 1.625 s, so 3.25 run on average
        server.state(running)
        text += f"{1796073395 + second}\n{server.text()}"
    found = [told for told in texts(metrics(tmp_path, text)) if told.startswith("Little's law")]
    assert (found == []) == holds
    if not holds:
        assert "10 requests run on average over 10 scrapes, but completed/s x inference is 3.25" in found[0]


def test_a_server_that_starts_again_is_read_from_there(tmp_path: Path) -> None:
    old, new = Server(), Server()
    old.serve(9)
    new.serve(2)
    first = new.text()
    new.serve(3)
    found = metrics(tmp_path, old.text(), first, new.text())
    assert found.totals["num_completed"] == 3
    assert any("counters fall 1 times" in text for text in texts(found))


def test_buckets_that_fall_are_wrong(tmp_path: Path) -> None:
    server = Server()
    server.serve(3)
    text = server.text()
    row = next(
        line
        for line in text.splitlines()
        if 'e2e_request_latency_seconds_bucket{engine="0",le="+Inf"' in line
    )
    found = metrics(tmp_path, text.replace(row, row.replace(" 3.0", " 1.0")))
    assert any(text.startswith("the buckets of e2e_s fall") for text in texts(found, is_wrong=True))


# --- percentiles ----------------------------------------------------------------------------


@given(
    st.lists(st.floats(0, 3, allow_subnormal=False), min_size=1, max_size=60),
    st.sampled_from([0.5, 0.9, 0.99]),
)
def test_a_percentile_lies_between_its_limits(values: list[float], share: float) -> None:
    limits = [*BUCKETS, math.inf]
    cumulative = {limit: float(sum(value <= limit for value in values)) for limit in limits}
    least, most = Histogram(sum(values), len(values), cumulative).between(share)
    assert least <= np.percentile(values, 100 * share) <= most
    assert least in (0.0, *limits) and most in limits


def test_a_percentile_of_nothing_is_not_there() -> None:
    empty = Histogram(0.0, 0.0, {1.0: 0.0, math.inf: 0.0})
    assert all(math.isnan(limit) for limit in empty.between(0.5)) and math.isnan(empty.mean)


# --- what is no such text -------------------------------------------------------------------


def test_a_line_that_is_no_metric_is_named(tmp_path: Path) -> None:
    server = Server()
    server.serve(1)
    rows = server.text().splitlines()
    rows.insert(5, "Traceback (most recent call last):")
    with pytest.raises(InputError, match=r"row 6: 'Traceback .* is no line of Prometheus text"):
        metrics(tmp_path, "\n".join(rows) + "\n")


TEXT = Source.open(REAL, None).text
ONE = TEXT[: TEXT.index("\n1796", 20)]  # the first scrape


@given(st.integers(0, len(ONE)), st.text(max_size=20))
def test_text_that_is_cut_is_read_or_refused_in_one_line(end: int, noise: str) -> None:
    source = Source(path=Path("metrics"), text=f"{ONE[:end]}{noise}", is_folder=False, run=None)
    try:
        prometheus.read(source)
    except InputError as error:
        assert "\n" not in str(error)


def test_a_histogram_that_is_cut_is_wrong(tmp_path: Path) -> None:
    server = Server()
    server.serve(3)
    rows = [
        row for row in server.text().splitlines() if 'latency_seconds_bucket{engine="0",le="+Inf"' not in row
    ]
    found = metrics(tmp_path, "\n".join(rows) + "\n")
    assert sum(text.startswith("the buckets of") for text in texts(found, is_wrong=True)) == 2


def test_a_histogram_of_more_values_than_its_buckets_is_wrong_and_has_no_percentile(tmp_path: Path) -> None:
    server = Server()
    server.serve(2)
    whole, many = "vllm:time_to_first_token_seconds_count{", 'engine="0",model_name="m"} 2.0'
    found = metrics(tmp_path, server.text().replace(f"{whole}{many}", f"{whole}{many[:-3]}9.0"))
    assert any("ttft_s fall, or do not hold its 9 values" in text for text in texts(found, is_wrong=True))
    json.dumps(to_json(found), allow_nan=False)
    assert "ttft_s.p99.least" not in found.totals and table(found) is not None


def test_metrics_of_two_engines_are_refused(tmp_path: Path) -> None:
    one, other = Server(), Server("sglang")
    one.serve(1)
    other.count("num_requests", 1)
    with pytest.raises(InputError, match="metrics of vllm and sglang"):
        metrics(tmp_path, one.text(), other.text())


def test_gauges_alone_are_no_metrics_of_a_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no counter of vllm"):
        metrics(tmp_path, 'vllm:num_requests_running{engine="0"} 1.0\n')
