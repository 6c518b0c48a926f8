"""BurstGPT, Qwen Bailian and LLMServingSim: told apart by content, each in its own units."""

from __future__ import annotations

import json
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchwright.errors import InputError
from batchwright.workload import Workload
from batchwright.workload.reuse import block_reuse, entry_reuse

pytestmark = pytest.mark.pure  # the layers above the core are pure Python

BURSTGPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,API log
118.5,GPT-4,417,276,693,Conversation log
"""


def opened(data: str, **options: object) -> Workload:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        path.write_text(data, encoding="utf-8")
        return Workload.open(path, **options)


def error_of(data: str, **options: object) -> str:
    with pytest.raises(InputError) as caught:
        opened(data, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value).partition("trace: ")[2]


# --- BurstGPT -----------------------------------------------------------------


def test_burstgpt_leaves_out_failures_and_says_so() -> None:
    load = opened(BURSTGPT)
    assert load.arrival.tolist() == [0.0, 113.5]
    assert load.prompt.tolist() == [472, 417] and load.output.tolist() == [18, 276]
    assert load.notes[:5] == [
        "BurstGPT CSV: Timestamp read as seconds",
        "the first Timestamp, 5, is time 0",
        "1 of 3 rows have 0 tokens, as requests that failed; they are left out",
        "requests by model: ChatGPT 2, GPT-4 1; all are served as one load",
        "columns ignored: Total tokens, Log Type",
    ]


def test_a_burstgpt_trace_of_failures_is_refused() -> None:
    text = "\n".join(BURSTGPT.splitlines()[:1] + BURSTGPT.splitlines()[2:3])
    assert error_of(text).startswith("every row has 0 tokens in 'Request tokens' or 'Response tokens'")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("472,18", "472,-1", "row 2: Response tokens is '-1', outside 0 to"),
        ("118.5", "44", "row 4: Timestamp is '44', before '45' in row 3"),
        (
            "Response tokens",
            "Respons tokens",
            "row 1: no column 'Response tokens', which a BurstGPT trace has;",
        ),
        ("1087,API log", "1087", "row 3: 5 fields, but the header has 6"),
    ],
)
def test_a_wrong_burstgpt_row_is_named(old: str, new: str, said: str) -> None:
    assert error_of(BURSTGPT.replace(old, new)).startswith(said)


# --- JSONL with hashes ------------------------------------------------------------


def bailian(prompts: list[list[int]], tails: list[int]) -> str:
    """One request for each list of whole blocks, with `tails` tokens more."""
    rows = [
        {"chat_id": i, "parent_chat_id": -1, "timestamp": i * 0.5, "input_length": 16 * len(blocks) + tail,
         "output_length": 3, "type": "text", "turn": 1, "hash_ids": blocks}
        for i, (blocks, tail) in enumerate(zip(prompts, tails, strict=True))
    ]  # fmt: skip
    return "\n".join(map(json.dumps, rows))


blocks = st.lists(st.integers(0, 2), min_size=1, max_size=5)
prompts = st.lists(blocks, min_size=1, max_size=6)


@settings(derandomize=True, deadline=None)
@given(prompts, st.data())
def test_blocks_hashed_alone_are_alike_only_after_alike_beginnings(
    prompts: list[list[int]], data: st.DataObject
) -> None:
    tails = data.draw(st.lists(st.integers(0, 15), min_size=len(prompts), max_size=len(prompts)))
    load = opened(bailian(prompts, tails))
    keys = [list(request.prefix) for request in load.requests(16)]
    assert list(map(len, keys)) == list(map(len, prompts))
    for i, one in enumerate(prompts):
        for j, other in enumerate(prompts):
            for k in range(min(len(one), len(other))):
                assert (keys[i][k] == keys[j][k]) == (one[: k + 1] == other[: k + 1])
    assert load.arrival.tolist() == [i * 0.5 for i in range(len(prompts))]  # seconds
    assert "hash_ids read as one prefix hash per 16 prompt tokens" in load.notes


def test_a_partial_last_block_may_have_a_hash_or_none() -> None:
    full, partial = opened(bailian([[1, 2]], [5])), opened(bailian([[1, 2, 3]], [-3]))
    assert [len(request.prefix) for load in (full, partial) for request in load.requests(16)] == [2, 2]
    message = error_of(bailian([[1, 2]], [20]))
    assert message.startswith(
        "row 1: hash_ids has 2 hashes, but a prompt of 52 tokens has 4 or 3 pieces of 16"
    )


def servingsim(rows: list[dict[str, object]]) -> str:
    return "\n".join(map(json.dumps, rows))


def test_llmservingsim_counts_in_nanoseconds_and_names_its_hashes() -> None:
    rows = [
        {
            "input_toks": 40,
            "output_toks": 5,
            "arrival_time_ns": 1_500_000_000,
            "prefix_block_hashes": ["a", "b"],
        },
        {
            "input_toks": 33,
            "output_toks": 6,
            "arrival_time_ns": 2_000_000_001,
            "prefix_block_hashes": ["a", "c"],
        },
    ]
    load = opened(servingsim(rows))
    assert load.arrival.tolist() == [0.0, 0.500000001]
    assert [list(request.prefix) for request in load.requests(16)] == [[0, 1], [0, 2]]
    assert load.notes[0] == "LLMServingSim JSONL: arrival_time_ns read as nanoseconds"
    rows[1]["prefix_block_hashes"] = ["a"]
    said = "row 2: prefix_block_hashes has 1 hashes, but a prompt of 33 tokens has 2 pieces of 16"
    assert error_of(servingsim(rows)).startswith(said)
    rows[1]["prefix_block_hashes"] = [1, 2]
    assert error_of(servingsim(rows)).startswith("row 2: prefix_block_hashes is not a list of texts")


def test_agentic_sessions_are_refused_by_name() -> None:
    text = servingsim([{"session_id": "a", "arrival_time_ns": 0, "sub_requests": [{"input_toks": 1}]}])
    assert error_of(text).startswith("is LLMServingSim's form of agentic sessions, whose sub_requests follow")


def test_formats_that_look_alike_are_told_apart() -> None:
    mooncake = {"timestamp": 1000, "input_length": 600, "output_length": 1}
    second = {**mooncake, "timestamp": 2000}
    lines = "\n".join(map(json.dumps, [mooncake, second]))
    assert opened(lines).span == 1.0  # milliseconds
    assert opened(lines, time_unit="s").span == 1000.0
    assert opened(lines, time_unit="s").notes[0] == "Mooncake JSONL: timestamp read as seconds, as given"
    chats = "\n".join(json.dumps({"chat_id": 1, **row}) for row in (mooncake, second))
    assert opened(chats).span == 1000.0
    plain = lines.replace("timestamp", "arrival")
    assert opened(plain).notes[0].startswith("JSONL: arrival read as seconds")


# --- blocks and reuse -----------------------------------------------------------------


@st.composite
def hashed(draw: st.DrawFn) -> Workload:
    """Prompts of 512-token hashes that share beginnings; one may fill a piece that another does not."""
    count = draw(st.integers(1, 6))
    parents = [draw(st.integers(-1, i - 1)) for i in range(count)]
    ids: list[list[int]] = []
    lengths = []
    for i, parent in enumerate(parents):
        shared = ids[parent][: draw(st.integers(0, len(ids[parent])))] if parent >= 0 else []
        own = [1000 * (i + 1) + k for k in range(draw(st.integers(0 if shared else 1, 3)))]
        ids.append(shared + own)
        tail = draw(st.integers(0, 511)) if own else 0
        lengths.append(512 * len(ids[-1]) - tail)
    return Workload.from_columns([0.0] * count, lengths, [1] * count, hash_ids=ids)


@settings(derandomize=True, deadline=None)
@given(hashed(), st.sampled_from([1, 16, 64, 512]))
def test_reuse_is_what_an_endless_cache_would_hit(load: Workload, block_size: int) -> None:
    seen: set[int] = set()
    hits = total = 0
    for request in load.requests(block_size):
        hits += sum(key in seen for key in request.prefix)
        total += len(request.prefix)
        seen.update(request.prefix)
    hashes = load.columns.hashes
    assert hashes is not None
    assert block_reuse(hashes, load.prompt, block_size) == (pytest.approx(hits / total) if total else None)
    repeats = 1 - len(set(hashes.ids.tolist())) / len(hashes.ids)
    assert entry_reuse(hashes, load.prompt) == pytest.approx(repeats)


@pytest.mark.parametrize("block_size", [4, 16])
def test_a_later_turn_finds_the_answer_of_an_earlier_one(block_size: int) -> None:
    load = Workload.open("sessions(rate=1, n=40, turns=4, think=1, prompt=100, output=50, shared_prefix=64)")
    hashes = load.columns.hashes
    assert hashes is not None and hashes.covered is not None
    seen: set[int] = set()
    hits = total = 0
    for row, prompt in enumerate(load.prompt.tolist()):
        keys = list(hashes.keys(row, prompt, block_size))
        hits += sum(key in seen for key in keys[: prompt // block_size])
        total += prompt // block_size
        seen.update(keys)
    assert block_reuse(hashes, load.prompt, block_size) == pytest.approx(hits / total)
    assert hits > total / 2


@settings(derandomize=True, deadline=None)
@given(prompts, st.sampled_from([16, 32, 64]))
def test_blocks_larger_than_a_hash_take_the_hash_at_their_end(
    prompts: list[list[int]], block_size: int
) -> None:
    load = opened(bailian(prompts, [0] * len(prompts)))
    per_block = block_size // 16
    small = [list(request.prefix) for request in load.requests(16)]
    large = [list(request.prefix) for request in load.requests(block_size)]
    assert large == [keys[per_block - 1 :: per_block] for keys in small]
    seen: set[int] = set()
    hits = 0
    for keys in large:
        hits += sum(key in seen for key in keys)
        seen.update(keys)
    total = sum(map(len, large))
    hashes = load.columns.hashes
    assert hashes is not None
    assert block_reuse(hashes, load.prompt, block_size) == (pytest.approx(hits / total) if total else None)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(
    st.sampled_from(
        [
            BURSTGPT,
            bailian([[1, 2], [1]], [3, 0]),
            '{"prompt": 5, "output": 3}\n{"prompt": 1, "output": 1}',
            servingsim([{"input_toks": 3, "output_toks": 5, "arrival_time_ns": 7}]),
        ]
    ),
    st.data(),
)
def test_a_changed_byte_gives_a_valid_load_or_an_input_error(text: str, data: st.DataObject) -> None:
    raw = bytearray(text.encode())
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        path.write_bytes(raw)
        try:
            load = Workload.open(path)
        except InputError as error:
            assert "\n" not in str(error)
            return
    assert all(one <= other for one, other in pairwise(load.arrival.tolist()))
    assert len(list(load.requests())) == len(load) > 0
