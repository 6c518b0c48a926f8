"""Loads of ServeGen client models have the counts, the laws and the lengths of the models."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from math import gamma, sqrt
from pathlib import Path

import numpy as np
import pytest

from batchwright.errors import InputError
from batchwright.workload import Workload
from batchwright.workload.client_draws import weibull_shape
from batchwright.workload.client_models import servegen

pytestmark = pytest.mark.pure  # the layers above the core are pure Python

QUIET = {"input_tokens": {}, "output_tokens": {}}
SHORT = {"input_tokens": {10: 0.5, 30: 0.5}, "output_tokens": {5: 1.0}}
LONG = {"input_tokens": {1000: 1.0}, "output_tokens": {200: 0.25, 100: 0.75}}


def dataset(spans: dict[int, dict[str, dict[int, float]]]) -> str:
    return json.dumps({str(start): {k: str(v) for k, v in parts.items()} for start, parts in spans.items()})


def models(folder: Path, clients: dict[int, tuple[list[tuple[float, float, str]], str]]) -> Path:
    """Files of clients: per window rate, CV and law, and the text of the data set."""
    folder.mkdir(parents=True)
    for number, (windows, text) in clients.items():
        rows = [f"{600 * i},{rate},{cv},{law},1,1" for i, (rate, cv, law) in enumerate(windows)]
        (folder / f"chunk-{number}-trace.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
        (folder / f"chunk-{number}-dataset.json").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """A steady client and one that changes its lengths and starts late."""
    changing = dataset({0: QUIET, 600: LONG})
    return models(tmp_path / "two", {
        3: ([(2.0, 1.0, "Gamma"), (1.0, 1.0, "Gamma"), (0, 0, "")], dataset({0: SHORT})),
        11: ([(0, 0, ""), (0.5, 2.0, "Weibull"), (1.5, 2.0, "Weibull")], changing),
    })  # fmt: skip


def test_each_window_has_as_many_requests_as_were_counted(two: Path) -> None:
    load = servegen(two, duration=1800.0)
    assert load.client is not None
    times = load.arrival + 0.0
    counts = {client: int((load.client == client).sum()) for client in (3, 11)}
    assert counts == {3: 1200 + 600, 11: 300 + 900}
    first = times < 600 - 1  # the first arrival is time 0, so windows begin up to a moment earlier
    assert set(load.client[first].tolist()) == {3}
    assert load.span <= 1800.0


def test_lengths_are_those_of_the_client_and_its_span(two: Path) -> None:
    load = servegen(two, duration=1800.0)
    assert load.client is not None
    short, long = load.client == 3, load.client == 11
    assert set(load.prompt[short].tolist()) == {10, 30} and set(load.output[short].tolist()) == {5}
    assert set(load.prompt[long].tolist()) == {1000} and set(load.output[long].tolist()) == {100, 200}
    assert abs(float((load.output[long] == 200).mean()) - 0.25) < 4 * sqrt(0.25 * 0.75 / long.sum())
    assert abs(float((load.prompt[short] == 10).mean()) - 0.5) < 4 * sqrt(0.25 / short.sum())


@pytest.mark.parametrize("law", ["Gamma", "Weibull"])
@pytest.mark.parametrize("cv", [0.3, 1.0, 3.0])
def test_gaps_have_the_cv_and_the_law_of_the_window(tmp_path: Path, law: str, cv: float) -> None:
    path = models(tmp_path / "one", {0: ([(40.0, cv, law)], dataset({0: SHORT}))})
    gaps = np.concatenate([np.diff(servegen(path, duration=600.0, seed=seed).arrival) for seed in range(4)])
    assert len(gaps) == 4 * 23_999
    assert float(gaps.mean()) == pytest.approx(1 / 40, rel=0.01)
    assert float(gaps.std() / gaps.mean()) == pytest.approx(cv, rel=0.03 if cv < 2 else 0.08)
    skew = float(((gaps - gaps.mean()) ** 3).mean() / gaps.std() ** 3)
    assert skew == pytest.approx(skewness(law, cv), rel=0.35, abs=0.05)


def skewness(law: str, cv: float) -> float:
    if law == "Gamma":
        return 2 * cv
    k = weibull_shape(cv**2)
    one, two, three = (gamma(1 + i / k) for i in (1, 2, 3))
    return (three - 3 * one * two + 2 * one**3) / (two - one**2) ** 1.5


@pytest.mark.parametrize("squared", [0.01, 0.25, 1.0, 4.0, 100.0, 1e4])
def test_a_weibull_shape_has_the_cv_that_was_asked_for(squared: float) -> None:
    k = weibull_shape(squared)
    assert gamma(1 + 2 / k) / gamma(1 + 1 / k) ** 2 - 1 == pytest.approx(squared, rel=1e-6)


def test_few_gaps_keep_the_mean_squared_cv_of_their_window(tmp_path: Path) -> None:
    path = models(tmp_path / "few", {0: ([(0.05, 2.0, "Gamma")], dataset({0: SHORT}))})
    squares = []
    for seed in range(1500):
        times = servegen(path, duration=600.0, seed=seed).arrival
        assert len(times) == 30
        gaps = np.append(np.diff(times), 600.0 - times[-1])  # they close the window
        squares.append(float((gaps.std() / gaps.mean()) ** 2))
    error = np.std(squares) / sqrt(len(squares))
    assert abs(float(np.mean(squares)) - 4.0) < 4 * error < 0.3


@pytest.mark.parametrize("cv", [0.0, 5.0, 1000.0])
def test_a_cv_that_few_gaps_cannot_have_is_still_a_load(tmp_path: Path, cv: float) -> None:
    path = models(tmp_path / "odd", {0: ([(0.01, cv, "Gamma"), (0.01, cv, "Weibull")], dataset({0: SHORT}))})
    assert len(servegen(path, duration=1200.0)) == 12


def test_a_rate_scales_all_clients_and_windows_alike(two: Path) -> None:
    load = servegen(two, rate=20.0, duration=1800.0)
    whole = servegen(two, duration=1800.0)
    assert abs(len(load) - 36_000) <= 4  # a fraction in each window of each client
    assert load.client is not None and whole.client is not None
    assert float((load.client == 3).mean()) == pytest.approx(float((whole.client == 3).mean()), abs=1e-3)
    fewer = [len(servegen(two, rate=0.01, duration=1800.0, seed=seed)) for seed in range(60)]
    assert float(np.mean(fewer)) == pytest.approx(
        18.0, abs=4 * 1.2 / sqrt(60)
    )  # rounded at random, without bias


def test_the_same_seed_gives_the_same_bytes(two: Path) -> None:
    one, again, other = (servegen(two, duration=1800.0, seed=seed) for seed in (7, 7, 8))
    assert one.digest == again.digest != other.digest
    assert Workload.open(two, seed=7).digest == servegen(two, seed=7).digest


def test_the_text_of_a_load_makes_it_and_its_repetitions(two: Path) -> None:
    load = Workload.open(f"servegen('{two}', rate=5, duration=900)", seed=4)
    assert load == servegen(two, rate=5, duration=900, seed=4)
    assert load.replicate(2) == servegen(two, rate=5, duration=900, seed=6)
    assert pickle.loads(pickle.dumps(load)).replicate(1) == load.replicate(1)
    assert Workload.open(two, seed=1).replicate(1) == servegen(two, seed=2)


def test_a_longer_load_starts_like_a_shorter_one(two: Path) -> None:
    long, short = servegen(two, duration=1800.0), servegen(two, duration=300.0)
    assert long.head(len(short)) == short.with_max_tokens(200)
    assert servegen(two, duration=1800.0, n=50).with_max_tokens(200) == long.head(50)


def test_a_start_within_the_models_begins_there(two: Path) -> None:
    late = servegen(two, start=1200.0, duration=600.0)
    assert late.client is not None and set(late.client.tolist()) == {11}
    assert len(late) == 900


def test_a_folder_and_a_tar_are_the_same(two: Path, tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(two, "data/language/two")
    (tmp_path / "models").write_bytes(packed.getvalue())
    assert servegen(tmp_path / "models", seed=3) == servegen(two, seed=3) == Workload.open(two, seed=3)


def test_images_are_prompt_tokens(tmp_path: Path) -> None:
    parts = {"text_tokens": {7: 1.0}, "image_count": {0: 0.5, 2: 0.5}, "image_tokens": {100: 0.5, 300: 0.5},
             "audio_count": {0: 1.0}, "audio_tokens": {0: 1.0}, "output_tokens": {4: 1.0}}  # fmt: skip
    path = models(tmp_path / "images", {0: ([(5.0, 1.0, "Gamma")], dataset({0: parts}))})
    load = servegen(path, duration=600.0)
    assert set(load.prompt.tolist()) == {7, 207, 407, 607}
    assert float((load.prompt == 7).mean()) == pytest.approx(0.5, abs=4 * 0.5 / sqrt(3000))
    assert any("images" in note for note in load.notes)


def test_what_was_chosen_is_said(two: Path) -> None:
    notes = servegen(two, rate=40.0, start=0.0).notes
    assert notes[0].startswith("ServeGen models of 2 clients in windows of 600 s")
    assert notes[1] == "seconds 0 to 500 of the models, 2 requests/s in the mean, scaled to 40"
    notes = servegen(two, duration=1800.0).notes
    assert notes[1] == "seconds 0 to 1800 of the models, 1.667 requests/s in the mean"


def test_a_rate_and_a_number_of_requests_are_both_kept(two: Path) -> None:
    for n in (500, 5_000):
        load = servegen(two, rate=10.0, n=n)
        assert len(load) == n and load.rate == pytest.approx(10.0, rel=0.15)
    assert len(servegen(two, n=10**6)) == 3000  # all that the models send


def test_without_an_end_there_are_20000_requests_at_most(two: Path) -> None:
    load = servegen(two, rate=40.0, start=600.0)
    assert len(load) <= 20_000
    busy = models(two.parent / "busy", {0: ([(100.0, 1.0, "Gamma")], dataset({0: SHORT}))})
    load = servegen(busy)
    assert len(load) == 20_000
    assert "only the first 20000 requests (neither n nor a duration was given)" in load.notes
    assert load.notes[1] == "seconds 0 to 201 of the models, 100 requests/s in the mean"


def test_requests_of_no_tokens_are_left_out_and_counted(tmp_path: Path) -> None:
    parts = {"input_tokens": {5: 1.0}, "output_tokens": {0: 0.5, 3: 0.5}}
    path = models(tmp_path / "empty", {0: ([(1.0, 1.0, "Gamma")], dataset({0: parts}))})
    load = servegen(path, duration=600.0)
    assert f"{600 - len(load)} requests of 0 tokens are left out" in load.notes
    assert 200 < len(load) < 400


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rate": 0}, "rate is 0; give a number over 0"),
        ({"rate": float("nan")}, "rate is nan; give a number over 0"),
        ({"duration": -1.0}, "duration is -1.0; give a number over 0"),
        ({"start": -1.0}, "start is -1.0; give a number at least 0"),
        ({"n": 0}, "n is 0; give a whole number of 1 to 20000000"),
        ({"seed": -1}, "seed is -1; give a whole number of 0 to"),
        ({"start": 1800.0}, "seconds 1800 to 1800 are not all in its 0 to 1800 s; change start"),
        ({"duration": 1801.0}, "seconds 0 to 1801 are not all in its 0 to 1800 s"),
        ({"rate": 1e6}, "over 20000000 requests; lower the rate, the duration or n"),
        ({"rate": 1e-9}, "no request came of it; raise the rate"),
    ],
)
def test_an_option_out_of_range_is_refused(two: Path, options: dict[str, float], said: str) -> None:
    with pytest.raises(InputError) as caught:
        servegen(two, **options)  # type: ignore[arg-type]
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("chunk-3-trace.csv", "0,1,1", "chunk-3-trace.csv: row 1: is not start, requests/s, CV, law"),
        ("chunk-3-trace.csv", "0,x,1,Gamma", "chunk-3-trace.csv: row 1: is not start, requests/s"),
        ("chunk-3-trace.csv", "0,-1,1,Gamma", "chunk-3-trace.csv: row 1: has a number that is no time"),
        ("chunk-3-trace.csv", "0,1,1,Gauss", "row 1: the law is 'Gauss'; known: Gamma, Weibull"),
        ("chunk-3-trace.csv", "", "is empty"),
        ("chunk-3-trace.csv", "0,1,1,Gamma", "its clients have different windows"),
        ("chunk-3-dataset.json", '{"0": {"input', "chunk-3-dataset.json: is no JSON of spans"),
        ("chunk-3-dataset.json", "[]", "chunk-3-dataset.json: is no JSON of spans"),
        ("chunk-3-dataset.json", "{}", "has requests at 0 s, but no text_tokens for them"),
        (
            "chunk-3-dataset.json",
            '{"0": {"input_tokens": "{1: x}"}}',
            "input_tokens is '{1: x}', no histogram",
        ),
        ("chunk-3-dataset.json", '{"0": {"input_tokens": "{1: 1.0, 2}"}}', "is no histogram of whole tokens"),
        ("chunk-3-dataset.json", '{"0": {"input_tokens": "{1.5: 1.0}"}}', "is no histogram of whole tokens"),
        ("chunk-3-dataset.json", '{"0": {"input_tokens": "{1: -}"}}', "has a cell that is no number"),
        ("chunk-3-dataset.json", None, "has no chunk-3-dataset.json"),
    ],
)
def test_a_damaged_file_is_named(two: Path, file: str, content: str | None, said: str) -> None:
    (two / file).unlink()
    if content is not None:
        (two / file).write_text(content, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        servegen(two)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_several_models_at_once_are_refused(two: Path, tmp_path: Path) -> None:
    models(tmp_path / "both" / "other", {3: ([(1.0, 1.0, "Gamma")], dataset({0: SHORT}))})
    two.rename(tmp_path / "both" / "two")
    with pytest.raises(InputError, match="holds the clients of several models"):
        servegen(tmp_path / "both")


def test_a_tar_that_is_cut_short_or_of_something_else_is_refused(two: Path, tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(two, "two")
    (tmp_path / "cut").write_bytes(packed.getvalue()[:1500])
    with pytest.raises(InputError, match="the tar is damaged or cut short"):
        servegen(tmp_path / "cut")
    other = io.BytesIO()
    with tarfile.open(fileobj=other, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("readme"))
    (tmp_path / "other").write_bytes(other.getvalue())
    with pytest.raises(InputError, match="is a tar without client models"):
        Workload.open(tmp_path / "other")
    with pytest.raises(InputError, match="holds client models, not rows; leave out columns and time_unit"):
        Workload.open(two, time_unit="s")
