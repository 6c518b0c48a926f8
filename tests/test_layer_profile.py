"""Reading a layer profile: its folders, what is refused, other splits, experts, and as a cost text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from batchwright.cost import Hosted, Layers
from batchwright.cost_text import cost as cost_of
from batchwright.errors import InputError, LimitError
from batchwright.layer_profile import layers, read_profile
from batchwright.layer_profile.build import captured
from batchwright.scenario.build import prepare
from batchwright.scenario.keys import Scenario
from batchwright.step import Step
from layer_folders import FOLDER, copied

SMALL = {"layers": 2}


def decodes(rows: int, context: int = 512) -> Step:
    step = Step()
    step.quiet(rows, 0, rows * context)
    return step


def with_line(line: str) -> Callable[[str], str]:
    return lambda text: text + line + "\n"


def without(pattern: str) -> Callable[[str], str]:
    return lambda text: "".join(line + "\n" for line in text.splitlines() if not re.match(pattern, line))


# --- what is refused ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        ("dense", lambda text: None, "no layer profile: neither dense.csv nor a folder tp1"),
        (
            "attention",
            lambda text: None,
            "attention.csv is missing; a layer profile has dense.csv, per_sequence",
        ),
        ("attention", lambda text: text.replace("n_decode", "rows"), "no column 'n_decode'"),
        ("attention", lambda text: text.splitlines()[0], "attention.csv: no rows; profile again"),
        ("attention", with_line("0,0,1,128,8.5"), "the same step is measured twice"),
        ("attention", without("0,0,"), "no step without prompt tokens"),
        ("attention", with_line("0,0,1,64"), "attention.csv:104: 4 columns, not the 5 of its header"),
        ("dense", with_line("qkv_proj,3,-1"), "dense.csv:92: time_us is -1, but must be greater than 0"),
        ("dense", with_line("qkv_proj,3,fast"), "dense.csv:92: time_us is 'fast', but must be a number"),
        (
            "dense",
            with_line("qkv_proj,2.5,9"),
            "dense.csv:92: tokens is '2.5', but must be a whole number from 1 to",
        ),
        ("dense", with_line("qkv_proj,2,9"), "qkv_proj has two times at 2; keep one of them"),
        ("per_sequence", without("lm_head"), "no layer lm_head"),
        ("skew_fit", with_line("0,many,sr>70%,kvB<=1k,kp=0,0.1,1"), "skew_fit.csv:21: n_label is 'many'"),
        ("dense", with_line("qkv_proj,1e300,9"), "dense.csv:92: tokens is '1e300', but must be a"),
        ("dense", with_line("qkv_proj,3,1e300"), "dense.csv:92: time_us is 1e+300, but must be"),
        ("skew_fit", with_line("0,n>64,sr>70%,kvB<=1k,kp=0,1e9,1"), "skew_fit.csv:21: alpha is '1e9'"),
        ("meta", lambda text: text.replace("0.1", ".nan"), "alpha_default of meta.yaml is nan, but must"),
        ("meta", lambda text: "skew_fit: on\n", "skew_fit of meta.yaml is True, but must be a mapping"),
        ("meta", lambda text: "skew_fit: {per_tp: {1: 3}}\n", "1 of meta.yaml is 3, but must be a mapping"),
        ("meta", lambda text: "[", "meta.yaml: cannot be read as YAML"),
        ("meta", lambda text: "just words", "meta.yaml: no mapping"),
    ],
)
def test_a_damaged_folder_is_refused_in_one_line(
    tmp_path: Path, file: str, change: Callable[[str], str | None], said: str
) -> None:
    with pytest.raises(InputError) as refusal:
        layers(copied(tmp_path, **{file: change}), layers=2)
    assert said in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_folder_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="no such folder; give the folder of a layer profile"):
        layers("nowhere", layers=2)


def test_another_attention_than_the_plain_one_is_refused(tmp_path: Path) -> None:
    def named(text: str) -> str:
        lines = text.splitlines()
        return "\n".join([f"layer,{lines[0]}", *(f"indexer,{line}" for line in lines[1:])])

    with pytest.raises(InputError, match="layer 'indexer' is no plain attention"):
        layers(copied(tmp_path, attention=named), layers=2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "profiled model 'made/tiny' is not built in; give model"),
        ({"layers": 0}, "layers is 0, but a model has at least 1"),
        ({"layers": 2, "tp": 2}, "needs the model's shape; give model"),
        ({"model": "llama-3.1-8b", "tp": 2, "link": 0.0}, "link is 0.0, but must be greater than 0"),
        ({"model": "mixtral-8x7b"}, "mixtral-8x7b has experts, but moe.csv is missing"),
    ],
)
def test_what_the_profile_does_not_tell_must_be_given(given: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        layers(FOLDER, **given)  # type: ignore[arg-type]


def test_heads_that_cannot_be_split_are_refused() -> None:
    with pytest.raises(LimitError):
        layers(FOLDER, model="llama-3.1-8b", tp=3)


def test_without_meta_all_must_be_given_and_skew_applies(tmp_path: Path) -> None:
    folder = copied(tmp_path, meta=lambda text: None)
    assert layers(folder, layers=2).times.skew.alpha(0, 4, 0.2, 900, 0) == 0.125
    assert layers(folder, layers=2).times.skew.alpha(20, 4, 0.2, 900, 0) == 0.0
    with pytest.raises(InputError, match="profiled model None is not built in"):
        layers(folder)
    with pytest.raises(InputError, match="the link of GPU None is not known; give link"):
        layers(folder, model="llama-3.1-8b", tp=2)


def test_a_skew_that_the_profile_says_is_off_is_not_applied(tmp_path: Path) -> None:
    folder = copied(tmp_path, meta=lambda text: text.replace("enabled: true", "enabled: false"))
    assert layers(folder, layers=2).times.skew.alpha(0, 4, 0.2, 900, 0) == 0.0
    unequal = decodes(4)
    unequal.least_context, unequal.greatest_context = 100, 2000
    assert layers(folder, layers=2).seconds(unequal) == layers(folder, layers=2).seconds(decodes(4))


# --- ragged grids ---------------------------------------------------------------------------


def test_a_slice_that_was_measured_at_fewer_places_is_read_between_its_own(tmp_path: Path) -> None:
    folder = copied(tmp_path, attention=without("64,128,16,512,"))
    grid = layers(folder, layers=1).times.attention
    low, high = (grid.at(64, 128, 16, context) for context in (128, 2048))
    assert grid.at(64, 128, 16, 512) == pytest.approx(low + (high - low) * (512 - 128) / (2048 - 128))


def test_rows_of_decodes_that_verify_drafts_are_left_out(tmp_path: Path) -> None:
    def with_drafts(text: str) -> str:
        head, *lines = text.splitlines()
        rows = [f"{line},{tokens}" for line in lines for tokens in (1, 4)]
        return "\n".join([f"{head},decode_q_len", *rows]) + "\n"

    found = layers(copied(tmp_path, attention=with_drafts), layers=2)
    assert found.seconds(decodes(4)) == layers(FOLDER, layers=2).seconds(decodes(4))


def test_attention_never_falls_as_contexts_grow(tmp_path: Path) -> None:
    noisy = copied(tmp_path, attention=lambda text: text.replace("0,0,4,512,16.0", "0,0,4,512,9.0"))
    values = read_profile(noisy).attention.values
    assert (np.diff(values, axis=3) >= 0).all() and values[0, 0, 2, 2] == values[0, 0, 2, 1]


# --- captured graphs ------------------------------------------------------------------------


def test_captured_sizes_are_those_of_vllm() -> None:
    tokens = np.array([1, 2, 3, 4, 5, 9, 250, 257, 512, 513])
    assert captured(tokens, 512).tolist() == [1, 2, 4, 4, 8, 16, 256, 272, 512, 513]
    assert captured(tokens, 256).tolist() == [1, 2, 4, 4, 8, 16, 256, 257, 512, 513]
    assert captured(tokens, 0).tolist() == tokens.tolist()


# --- other degrees of parallelism -----------------------------------------------------------


def two_degrees(to: Path) -> Path:
    """A profile with subfolders; every time of tp2 is half that of tp1."""
    copied(to / "tp1", meta=lambda text: None)
    copied(to / "tp2", meta=lambda text: None)
    (to / "meta.yaml").write_text((FOLDER / "meta.yaml").read_text())
    for name in ("dense", "per_sequence", "attention"):
        path = to / "tp2" / f"{name}.csv"
        head, *rows = path.read_text().splitlines()
        halved = [f"{row.rsplit(',', 1)[0]},{float(row.rsplit(',', 1)[1]) / 2}" for row in rows]
        path.write_text("\n".join([head, *halved]) + "\n")
    return to


def test_a_measured_degree_is_read_from_its_own_folder(tmp_path: Path) -> None:
    folder = two_degrees(tmp_path)
    assert read_profile(folder, 1).tp == 1 and read_profile(folder, 2).tp == 2
    assert read_profile(folder, 4).tp == 2
    one, two = (layers(folder, model="llama-3.1-8b", tp=tp) for tp in (1, 2))
    wires = two.times.hops + 4 * two.times.transfer
    assert two.seconds(decodes(4)) - wires == pytest.approx(one.seconds(decodes(4)) / 2, rel=1e-12)


def test_a_degree_that_no_measured_one_divides_is_refused(tmp_path: Path) -> None:
    two_degrees(tmp_path)
    for path in (tmp_path / "tp1").iterdir():
        path.unlink()
    (tmp_path / "tp1").rmdir()
    with pytest.raises(InputError, match="measured at tp 2, none of which divides tp 1; profile tp 1, too"):
        read_profile(tmp_path, 1)


def test_a_missing_degree_has_a_part_of_what_a_rank_has_a_part_of() -> None:
    two = layers(FOLDER, model="llama-3.1-8b", tp=2)
    least, floor = 2, 8.125  # the shortest layer, and the shortest attention
    layer = 2 * 2 + sum(least + (time - least) / 2 for time in (21, 2, 15.5, 82, 3.25, 41))
    once = (least + 3 / 2) + 2
    head = (least_of_head := 2) + (304 - least_of_head) / 2 + 22
    attention = floor + (16 - floor) / 2
    wires = 2 * 32 * (2 * 1 * 6.2 + 2 * 1 / 2 * 4 * 4096 * 2 / (0.57 * 32e9) * 1e6)  # an RTX 4090 on PCIe
    expected = once + 32 * (layer + attention) + head + wires
    assert two.seconds(decodes(4)) * 1e6 == pytest.approx(expected, rel=1e-9)


def test_a_link_of_ones_own_prices_all_reduces() -> None:
    slow, fast = (layers(FOLDER, model="llama-3.1-8b", tp=2, link=link, hop=0.0) for link in (1e9, 2e9))
    sent = 2 * 32 * 4 * 4096 * 2
    assert slow.seconds(decodes(4)) - fast.seconds(decodes(4)) == pytest.approx(sent / 2e9, rel=1e-9)


def test_data_parallel_ranks_share_rows_and_wait_for_the_busiest(tmp_path: Path) -> None:
    one, two = (layers(with_experts(tmp_path), "mixtral-8x7b", dp=dp, hop=0.0) for dp in (1, 2))
    more = two._experts(8) - one._experts(4)  # which get the tokens of both
    assert two.seconds(decodes(8)) == pytest.approx(one.seconds(decodes(4)) + more, rel=1e-12)
    assert two.seconds(decodes(7)) == two.seconds(decodes(8))
    chunk = Step()
    chunk.prefill_tokens, chunk.num_chunks, chunk.prefill_attention, chunk.sampled_rows = 16, 1, 128.0, 1
    assert two.seconds(chunk) == pytest.approx(
        one.seconds(chunk) + two._experts(32) - one._experts(16), rel=1e-12
    )


# --- experts --------------------------------------------------------------------------------

MOE = [(tokens, experts, 10 + 4 * experts + tokens / 8) for tokens in (1, 16, 256) for experts in (2, 4, 8)]


def with_experts(to: Path, ranks: tuple[int, ...] = ()) -> Path:
    """The profile with `moe.csv`; `ranks`: with a column `ep`, and times over it."""
    copied(to)
    head, rows = "tokens,activated_experts,time_us", [f"{a},{b},{c}" for a, b, c in MOE]
    if ranks:
        head = f"ep,{head}"
        rows = [f"{ep},{a},{b},{c / ep}" for ep in ranks for a, b, c in MOE]
    (to / "moe.csv").write_text("\n".join([head, *rows]) + "\n")
    return to


def test_experts_add_the_time_of_those_that_the_tokens_use(tmp_path: Path) -> None:
    found = layers(with_experts(tmp_path), model="mixtral-8x7b")
    used = 8 * (1 - (1 - 2 / 8) ** 4)  # of 8 experts, by 4 tokens that use 2 each
    dense = 7 + 32 * (2 * 2 + 21 + 2 + 15.5)  # no feed-forward beside the experts
    expected = dense + 326 + 32 * (16 + 10 + 4 * used + 4 / 8)
    assert found.seconds(decodes(4)) * 1e6 == pytest.approx(expected, rel=1e-9)


def test_experts_on_two_ranks_are_looked_up_as_they_were_measured(tmp_path: Path) -> None:
    found = layers(with_experts(tmp_path, (1, 2)), model="mixtral-8x7b", dp=2, ep=True, link=1e15, hop=0.0)
    experts = found.times.experts
    assert experts is not None and experts.is_whole and experts.ranks == 2
    place = (16, 4, 0, 0)
    assert experts.seconds.at(*place) * 1e6 == pytest.approx(32 * (10 + 16 + 2) / 2, rel=1e-9)


def test_experts_that_were_measured_all_on_one_gpu_get_a_ranks_share_of_the_pairs(tmp_path: Path) -> None:
    one = layers(with_experts(tmp_path), model="mixtral-8x7b")
    two = layers(tmp_path, model="mixtral-8x7b", dp=2, ep=True, link=1e15, hop=0.0)
    assert two.times.experts is not None and not two.times.experts.is_whole
    assert two.seconds(decodes(64)) < one.seconds(decodes(64))


def test_tokens_that_travel_to_experts_take_time(tmp_path: Path) -> None:
    folder = with_experts(tmp_path, (1, 2))
    near, far = (
        layers(folder, model="mixtral-8x7b", dp=2, ep=True, link=link, hop=0.0) for link in (1e15, 1e9)
    )
    sent = 32 * 8 * (2 * 4096 + 8) * 2 / 2  # 32 layers, 8 tokens of both ranks, there and back
    assert far.seconds(decodes(8)) - near.seconds(decodes(8)) == pytest.approx(sent / 1e9, rel=1e-3)


def test_experts_without_a_model_or_of_a_model_without_are_refused(tmp_path: Path) -> None:
    folder = with_experts(tmp_path)
    with pytest.raises(InputError, match="the number of experts is needed; give model"):
        layers(folder, layers=2)
    with pytest.raises(InputError, match=r"moe\.csv is there, but llama-3.1-8b has no experts"):
        layers(folder, model="llama-3.1-8b")


# --- as a cost text -------------------------------------------------------------------------


def test_a_cost_text_reads_the_folder() -> None:
    found = cost_of(f"layers('{FOLDER}', layers=2, step=0.001)")
    assert found == layers(FOLDER, layers=2, step=0.001)
    hosted = cost_of(f"hosted(layers('{FOLDER}', layers=2))")
    assert isinstance(hosted, Hosted) and isinstance(hosted.cost, Layers)


def test_a_cost_text_with_a_number_for_a_folder_is_refused() -> None:
    with pytest.raises(InputError, match="needs a quoted name as folder, not 3"):
        cost_of("layers(3)")


def notes(**server: str) -> list[str]:
    """What is chosen for a user who compares policies with the layer profile."""
    cost = f"layers('{FOLDER}', layers=2)"
    return prepare(Scenario(workload="chat(n=30, rate=20)", policies="vllm", cost=cost, **server)).notes


def test_a_comparison_says_where_it_leaves_what_was_measured() -> None:
    said = notes()
    assert "KV memory is not modelled with --cost; give --num-gpu-blocks-override" in said
    assert "steps of over 64 decodes were not measured, and are extrapolated; max_num_seqs is 256" in said
    assert any(note.startswith("steps of over 512 tokens were not measured") for note in said)


def test_beside_a_layer_profile_gpu_and_model_say_how_many_kv_blocks_fit() -> None:
    said = notes(gpu="RTX-4090", model="llama-3.1-8b")
    assert any("fit the GPU memory" in note for note in said)
    with pytest.raises(InputError, match="--gpu is given beside --cost; give both --gpu and --model"):
        notes(gpu="RTX-4090")
    with pytest.raises(InputError, match="--cost is given together with --dtype"):
        notes(gpu="RTX-4090", model="llama-3.1-8b", dtype="float16")


def test_flags_are_those_of_one_data_parallel_rank_of_the_profile(tmp_path: Path) -> None:
    cost = f"layers('{with_experts(tmp_path)}', 'mixtral-8x7b', dp=2, ep=True)"
    flags = {"max_num_seqs": 16, "max_num_batched_tokens": 256, "num_gpu_blocks_override": 1001}
    found = prepare(Scenario(workload="chat(n=30, rate=20)", policies="vllm", cost=cost, **flags))
    limits = found.limits
    assert (limits.max_num_seqs, limits.max_num_batched_tokens, limits.num_kv_blocks) == (32, 512, 2000)
    assert any("a step is a round of 2 data-parallel ranks" in note for note in found.notes)


def test_a_model_with_other_layers_than_were_profiled_is_refused(tmp_path: Path) -> None:
    folder = copied(tmp_path, meta=lambda text: text.replace("made/tiny", "meta-llama/Llama-3.1-8B"))
    assert layers(folder).range == layers(folder, model="llama-3.1-8b").range
    with pytest.raises(InputError, match=r"was measured of meta-llama/Llama-3\.1-8B, and qwen2-72b has"):
        layers(folder, model="qwen2-72b")


@pytest.mark.parametrize("hop", [-1.0, math.inf, math.nan])
def test_a_hop_that_takes_no_time_that_can_be_is_refused(hop: float) -> None:
    with pytest.raises(InputError, match=r"hop is .*, but must be at least 0 seconds, and finite"):
        layers(FOLDER, model="llama-3.1-8b", tp=2, hop=hop)
