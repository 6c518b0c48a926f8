"""`batchwright fit`, and `--profile` of the commands that take a cost."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("scipy", reason="needs the extra fit")

from batchwright.calibration.requests_report import profile_limits
from batchwright.limits import Limits
from batchwright.profile import read
from test_cli import Command, command, good, refusal

pytestmark = pytest.mark.pure
__all__ = ["command"]  # a fixture

LOG = str(Path(__file__).parent / "data" / "vllm_steps.csv")
COST = "linear(base=0.005, prefill=2e-5, decode=1e-4, context=1e-7, prefill_attention=1e-9)"
CHAT = ("chat", "--requests", "40", "--policies", "vllm")


@pytest.fixture
def profile(command: Command) -> str:
    """The name of a profile of a log of vLLM."""
    good(command("fit", LOG, "-o", "p.yaml"))
    return "p.yaml"


def test_it_prints_coefficients_with_errors_and_says_what_it_wrote(command: Command) -> None:
    printed = good(command("fit", LOG, "-o", "p.yaml"))
    assert "615 steps of" in printed and "standard error" in printed and "held out" in printed
    assert "p.yaml: written; compare LOAD --profile p.yaml uses it" in printed
    assert read(Path("p.yaml")).name == "p"


def test_without_a_file_it_prints_the_cost_alone(command: Command) -> None:
    printed = good(command("fit", LOG))
    assert "--cost 'hosted(fitted([(0, 0.004" in printed and "written" not in printed
    assert not list(Path().glob("*.yaml"))


def test_a_run_of_a_known_cost_is_fitted_to_that_cost(command: Command) -> None:
    good(command("compare", *CHAT, "--cost", COST, "-o", "run"))
    found = json.loads(good(command("fit", "run", "--json")))
    values = {one["name"]: one["seconds"] for one in found["coefficients"]}
    assert values["base"] == pytest.approx(0.005)
    assert values["context"] == pytest.approx(1e-7) and values["prefill_attention"] == pytest.approx(1e-9)
    assert found["held_out"]["mean"] < 1e-9 and found["profile"] is None


def test_a_profile_predicts_what_its_cost_predicts(command: Command, profile: str) -> None:
    cost = yaml.safe_load(Path(profile).read_text())["cost"]
    ours, theirs = (
        json.loads(good(command("compare", *CHAT, "--json", *how)))["policies"]["vllm"]
        for how in (("--profile", profile), ("--cost", cost))
    )
    assert ours == theirs


def test_notes_say_where_a_profile_is_from_and_where_a_run_leaves_it(command: Command, profile: str) -> None:
    found = json.loads(good(command("compare", *CHAT, "--profile", profile, "--json")))
    notes = " ".join(found["notes"])
    assert found["cost"] == "profile p"
    assert "cost is that of profile p, made by batchwright" in notes
    assert "vllm goes beyond the steps that its profile was fitted to: of its steps," in notes
    assert "have more than 506 tokens" in notes


def test_a_run_inside_the_range_says_nothing_of_it(command: Command, profile: str) -> None:
    load = "poisson(n=20, rate=1, prompt=20, output=10)"
    printed = good(command("compare", load, "--policies", "vllm", "--profile", profile))
    assert "cost is that of profile p" in printed and "goes beyond" not in printed


@pytest.mark.parametrize("form", ["vllm-bench", "perfetto"])
def test_export_and_timeline_read_profiles_too(command: Command, profile: str, form: str) -> None:
    flags = (*CHAT, "--profile", profile)
    good(command("export", *flags, "--format", form, "-o", "out.json"))
    good(command("timeline", *flags))


def test_limits_of_a_profile_hold_unless_flags_say_otherwise(command: Command, profile: str) -> None:
    text = Path(profile).read_text()
    limits = "limits: {num_gpu_blocks_override: 601, max_num_seqs: 7}"
    Path(profile).write_text(text.replace("limits: {}", limits))
    flags = ("compare", *CHAT, "--profile", profile, "--json")
    found = json.loads(good(command(*flags)))
    assert found["limits"]["num_kv_blocks"] == 600 and found["limits"]["max_num_seqs"] == 7
    assert "max_num_seqs is 7, that of the profile" in found["notes"]
    assert any(note.startswith("the profile was edited") for note in found["notes"])
    other = json.loads(good(command(*flags, "--max-num-seqs", "9", "--num-gpu-blocks-override", "701")))
    assert other["limits"]["num_kv_blocks"] == 700 and other["limits"]["max_num_seqs"] == 9


def test_blocks_of_another_size_are_refused(command: Command, profile: str) -> None:
    text = Path(profile).read_text()
    limits = "limits: {num_gpu_blocks_override: 601, block_size: 16}"
    Path(profile).write_text(text.replace("limits: {}", limits))
    told = refusal(command("compare", *CHAT, "--profile", profile, "--block-size", "32"))
    assert "--block-size is 32, but the 601 KV blocks of the profile are of 16" in told


def test_a_run_folder_finds_its_profile_again(command: Command, profile: str) -> None:
    good(command("compare", *CHAT, "--profile", profile, "-o", "deep/run"))
    config = yaml.safe_load(Path("deep/run/config.yaml").read_text())
    assert config["profile"] == "../../p.yaml"
    again = json.loads(good(command("compare", "deep/run/config.yaml", "--json")))
    assert again["policies"] == json.loads(Path("deep/run/summary.json").read_text())["policies"]


@pytest.mark.parametrize(
    "other", [("--cost", "constant(1)"), ("--gpu", "H100-SXM"), ("--model", "llama-3.1-8b"), ("--tp", "2")]
)
def test_a_profile_stands_alone(command: Command, profile: str, other: tuple[str, str]) -> None:
    told = refusal(command("compare", *CHAT, "--profile", profile, *other))
    assert told.startswith(f"--profile is given together with {other[0]}; leave one of them out")


def test_a_profile_that_is_there_is_kept_unless_forced(command: Command, profile: str) -> None:
    before = Path(profile).read_bytes()
    assert "--force" in refusal(command("fit", LOG, "-o", profile, "--name", "other"))
    assert Path(profile).read_bytes() == before
    good(command("fit", LOG, "-o", profile, "--name", "other", "--force"))
    assert read(Path(profile)).name == "other"


def test_the_same_log_gives_the_same_bytes(command: Command, profile: str) -> None:
    good(command("fit", LOG, "-o", "again.yaml", "--name", "p"))
    assert Path("again.yaml").read_bytes() == Path(profile).read_bytes()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("four.csv",), "four.csv: is a file of no form that is read"),
        (("none.csv",), "none.csv"),
        ((LOG, "-o", "no/such/place.yaml"), "cannot be written"),
        ((LOG, "-o", "."), "is there already"),
    ],
    ids=["a trace", "no file", "no folder", "a folder"],
)
def test_wrong_input_is_one_line(command: Command, words: tuple[str, ...], why: str) -> None:
    assert why in refusal(command("fit", *words))


def test_a_profile_that_is_none_is_one_line(command: Command) -> None:
    assert "is no profile" in refusal(command("compare", *CHAT, "--profile", "four.csv"))


def test_without_scipy_it_says_what_to_install(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    assert refusal(command("fit", LOG)).endswith("pip install 'batchwright[fit]'")


def test_attention_can_be_left_out(command: Command) -> None:
    found = json.loads(good(command("fit", LOG, "--no-attention", "--json")))
    assert "context" not in found["cost"] and "context: left out by --no-attention" in found["kept"]


# --- requests ---------------------------------------------------------------------------

SERVED = "poisson(rate=6, n=60, prompt=uniform(64,2048), output=uniform(8,64), seed=3)"
TRUE_COST = "roofline('H100-SXM','llama-3.1-8b',mfu=0.37,mbu=0.61)"


@pytest.fixture
def bench(command: Command) -> str:
    """What `vllm bench serve` would have written of a server of known efficiency."""
    said = ("export", SERVED, "--format", "vllm-bench", "--cost", TRUE_COST, "--policies", "vllm")
    assert command(*said, "-o", "bench.json").status == 0
    return "bench.json"


def test_requests_alone_give_the_efficiency_of_their_server(command: Command, bench: str) -> None:
    limits = ("--set", "max_num_seqs=256", "--set", "max_num_batched_tokens=8192")
    printed = good(command("fit", bench, "--policy", "vllm", *limits, "-o", "server.yaml", "--json"))
    found = json.loads(printed)
    assert found["kind"] == "requests" and (found["num_fitted"], found["num_requests"]) == (30, 60)
    values = {one["name"]: one["value"] for one in found["parameters"]}
    assert values["mfu"] == pytest.approx(0.37, rel=0.05) and values["mbu"] == pytest.approx(0.61, rel=0.1)
    assert abs(found["held_out"]["e2e_s"]["mean"]) < 0.02
    told = read(Path("server.yaml")).limits  # max_model_len is what these requests need, not the server's
    assert told["max_num_seqs"] == 256 and "max_model_len" not in told
    compared = command("compare", SERVED, "--policies", "vllm", "--profile", "server.yaml", "--json")
    notes = json.loads(good(compared))["notes"]
    assert any("its error on measurements that it was not fitted to: mean TTFT" in note for note in notes)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "say how it was started"),
        (["--policy", "vllm,orca"], "one server was timed, but 2 policies"),
        (["--policy", "vllm", "--held-out", "1"], "held-out is 1"),
        (["--policy", "vllm", "--held-out", "0.9"], "6 requests have timings; a fit needs 20"),
        (["--policy", "vllm", "--load", "poisson(n=7, rate=1, prompt=9, output=9)"], "has 7 requests, but"),
        (["--policy", "vllm", "--set", "cost=constant(0.1)"], "is no roofline of a GPU and a model"),
    ],
)
def test_what_cannot_be_fitted_to_requests_is_one_line(
    command: Command, bench: str, flags: list[str], said: str
) -> None:
    assert said in refusal(command("fit", bench, *flags))


def test_a_profile_of_requests_has_the_max_model_len_that_was_given() -> None:
    limits = Limits(max_num_seqs=8, max_model_len=528, num_kv_blocks=100)
    assert profile_limits(limits, 4096)["max_model_len"] == 4096
    assert profile_limits(limits, 4096)["num_gpu_blocks_override"] == 101
    assert "max_model_len" not in profile_limits(limits, None)


def test_steps_ask_for_no_server(command: Command) -> None:
    assert "steps need no simulation" in refusal(command("fit", LOG, "--gpu", "H100-SXM"))
