"""The OpenVINO engine on a real model: each sequence gets what it gets alone.

Steps are made by hand here, at random; blocks are handed out in no order, and never cleaned.
The model is that of `batchwright model get`, or BATCHWRIGHT_MODEL names an openvino_model.xml.
"""

from __future__ import annotations

import os
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from batchwright import Limits, Request
from batchwright.engines.live import Live
from batchwright.engines.sampling import Sampling
from batchwright.engines.sequence import Sequence
from batchwright.engines.work import Work
from batchwright.errors import BatchwrightError, EngineError, InputError, LimitError
from batchwright.policies import Dynamic, Static, Vllm

ov = pytest.importorskip("openvino", reason="openvino is not installed")

from batchwright.checkpoint.places import IR, locate  # noqa: E402
from batchwright.cli.model import cache_folder  # noqa: E402
from batchwright.engines import openvino_network  # noqa: E402
from batchwright.engines.openvino import OpenVino  # noqa: E402

NUM_BLOCKS = 96
NUM_TOKENS = 10  # of each output


@pytest.fixture(scope="module")
def ir() -> Path:
    if "BATCHWRIGHT_MODEL" in os.environ:
        return Path(os.environ["BATCHWRIGHT_MODEL"])
    cache = os.environ.get("BATCHWRIGHT_CACHE")
    source = locate(None, cache_folder(Path(cache) if cache else None))
    if not source.has_ir:
        pytest.skip(f"no model: `{source.command}` gets one, or BATCHWRIGHT_MODEL names one")
    return source.ir / IR


def load(ir: Path, **options: Any) -> OpenVino:
    return OpenVino.load(
        ir, **{"threads": 1, "num_kv_blocks": NUM_BLOCKS, "max_model_len": 1024} | options
    )  # fmt: skip


@pytest.fixture(scope="module")
def exact(ir: Path) -> OpenVino:
    return load(ir, kv_cache_precision="f16", exact=True)


@pytest.fixture(scope="module", params=["u8", "f16"])
def fast(ir: Path, request: pytest.FixtureRequest) -> OpenVino:
    return load(ir, kv_cache_precision=request.param)


# --- steps made by hand -----------------------------------------------------------


class Hand:
    """Steps of sequences on an engine, and who has which block."""

    def __init__(self, engine: OpenVino, random: Random) -> None:
        self.engine = engine
        self.size = engine.capacity.block_size or 0
        self.free = list(range(NUM_BLOCKS))
        random.shuffle(self.free)
        self.owners = [0] * NUM_BLOCKS
        self.work = Work(NUM_BLOCKS)
        self.computed: dict[Sequence, int] = {}

    def add(self, s: Sequence, count: int, padding: int = 0) -> None:
        """The next `count` tokens of `s` in the coming step."""
        past = self.computed.get(s, 0)
        end = past + count
        while len(s.table) * self.size < end:
            s.table.append(self.free.pop())
            self.owners[s.table[-1]] = 1
        self.computed[s] = end
        self.work.add(s, past, s.ids(past, end), padding, end == len(s.prompt) + len(s.tokens))

    def share(self, s: Sequence, other: Sequence, num_blocks: int) -> None:
        """Let `s` begin with blocks of `other`."""
        s.table = other.table[:num_blocks]
        for block in s.table:
            self.owners[block] += 1
        self.computed[s] = num_blocks * self.size

    def release(self, s: Sequence) -> None:
        for block in s.table:
            self.owners[block] -= 1
            if self.owners[block] == 0:
                self.free.append(block)
        s.table = []
        self.computed.pop(s, None)

    def run(self) -> None:
        for s, token in zip(self.work.sampled, self.engine.run(self.work), strict=True):
            s.tokens.append(token)
        self.work.clear()

    def left(self, s: Sequence) -> int:
        """Tokens of `s` that are known and not computed."""
        return len(s.prompt) + len(s.tokens) - self.computed.get(s, 0)


def sequence(prompt: list[int], **options: Any) -> Sequence:
    return Sequence(Request(0, 0.0, len(prompt), NUM_TOKENS), prompt, **options)


def alone(engine: OpenVino, prompt: list[int], **options: Any) -> list[int]:
    """The output of a sequence that has the engine to itself, its prompt in one chunk."""
    hand, s = Hand(engine, Random(0)), sequence(prompt, **options)
    while len(s.tokens) < NUM_TOKENS:
        hand.add(s, hand.left(s))
        hand.run()
    return s.tokens


def prompts(random: Random, vocab_size: int, num: int, longest: int = 150) -> list[list[int]]:
    """Prompts of random tokens; about half of them begin alike."""
    stem = [random.randrange(vocab_size) for _ in range(96)]
    made = []
    for _ in range(num):
        own = [random.randrange(vocab_size) for _ in range(random.randint(1, longest))]
        made.append(stem[: random.choice([0, 0, 32, 64, 96])] + own)
    return made


def storm(hand: Hand, waiting: list[Sequence], random: Random, most: int = 8) -> None:
    """Run all of `waiting` to their ends: cut, mixed, shared, padded and preempted at random."""
    running: list[Sequence] = []
    while waiting or running:
        while waiting and len(running) < most:
            running.append(waiting.pop())
        random.shuffle(running)
        _preempt(hand, running, random)
        for s in running:
            _add(hand, s, running, random)
        if random.random() < 0.3:
            ended = sequence([1])
            hand.work.add(ended, random.randrange(100), [], 1, False)
        if hand.work.rows:
            hand.run()
        for s in [s for s in running if len(s.tokens) == NUM_TOKENS]:
            running.remove(s)
            hand.release(s)


def _preempt(hand: Hand, running: list[Sequence], random: Random) -> None:
    for s in running:
        if random.random() < 0.04:
            hand.release(s)


def _add(hand: Hand, s: Sequence, running: list[Sequence], random: Random) -> None:
    if s not in hand.computed:
        _share(hand, s, running, random)
    if random.random() < 0.8:
        left = hand.left(s)
        count = random.choice([left, random.randint(1, left), 1])
        hand.add(s, count, random.choice([0, 0, random.randint(1, 40)]) if left > 1 else 0)


def _share(hand: Hand, s: Sequence, running: list[Sequence], random: Random) -> None:
    """Begin with another's blocks, those too that it fills in this very step."""
    known = s.prompt + s.tokens
    for other in random.sample(running, len(running)):
        ids = (other.prompt + other.tokens)[: hand.computed.get(other, 0)]
        alike = sum(1 for _ in _while_equal(known[:-1], ids)) // hand.size
        if alike and random.random() < 0.8:
            hand.share(s, other, alike)
            return


def _while_equal(first: list[int], second: list[int]) -> Iterator[int]:
    for a, b in zip(first, second, strict=False):
        if a != b:
            return
        yield a


# --- exact ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def references(exact: OpenVino) -> list[tuple[list[int], list[int]]]:
    """Prompts, each with its output alone."""
    made = prompts(Random(1), exact.vocab_size, 10)
    return [(prompt, alone(exact, prompt)) for prompt in made]


@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_batch_each_output_is_the_one_alone(
    exact: OpenVino, references: list[tuple[list[int], list[int]]], seed: int
) -> None:
    sequences = [sequence(prompt) for prompt, _ in references]
    hand = Hand(exact, Random(seed))
    storm(hand, sequences.copy(), Random(seed))
    assert [s.tokens for s in sequences] == [tokens for _, tokens in references]
    assert sorted(hand.free) == list(range(NUM_BLOCKS))


@pytest.mark.long
def test_many_long_outputs_too(ir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_openvino.NUM_TOKENS", 64)
    engine = load(ir, kv_cache_precision="f16", exact=True)
    sequences = [sequence(prompt) for prompt in prompts(Random(2), engine.vocab_size, 64)]
    storm(Hand(engine, Random(3)), sequences.copy(), Random(3))
    for s in sequences:
        assert alone(engine, s.prompt) == s.tokens


def test_sampled_outputs_too(exact: OpenVino) -> None:
    random = Random(4)
    options = [
        {"sampling": Sampling(seed=1)},
        {"sampling": Sampling(temperature=0.7, top_p=0.9, seed=2)},
        {"sampling": Sampling(top_k=20, seed=2)},
        {},
        {"stop_ids": frozenset(range(0, exact.vocab_size, 2)), "min_tokens": NUM_TOKENS},
    ]
    made = list(zip(prompts(random, exact.vocab_size, len(options)), options, strict=True))
    sequences = [sequence(prompt, **option) for prompt, option in made]
    storm(Hand(exact, random), sequences.copy(), random)
    assert [s.tokens for s in sequences] == [alone(exact, prompt, **option) for prompt, option in made]
    assert all(token % 2 for token in sequences[-1].tokens)


def test_exact_logits_are_bit_for_bit_those_of_one_token_at_a_time(
    exact: OpenVino, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the prompt is cut, and whoever else is in its steps; argmax alone would hide a difference."""
    random, prompt, seen = Random(6), list(range(100, 230)), []
    logits = exact._exact_logits
    monkeypatch.setattr(exact, "_exact_logits", lambda work: seen.append(logits(work)) or seen[-1])
    for pieces in ([1] * 130, [130], [33, 64, 32, 1], [2] * 65, [97, 33]):
        hand, s = Hand(exact, random), sequence(prompt)
        others = [sequence([7 + i] * 3) for i in range(0 if len(pieces) == 130 else len(pieces))]
        for count in pieces:
            hand.add(s, count)
            for other in others[: len(pieces) % 20]:
                hand.add(other, hand.left(other))
            hand.run()
        last = seen[-1][0]
        assert last.tobytes() == seen[129][0].tobytes(), pieces
    assert len(seen) == 130 + 1 + 4 + 65 + 2


def test_a_block_may_be_read_in_the_step_that_writes_it(exact: OpenVino) -> None:
    prompt = prompts(Random(5), exact.vocab_size, 1)[0][:1] * 3 + list(range(100, 197))
    expected = alone(exact, prompt)
    hand = Hand(exact, Random(5))
    first, second = sequence(prompt), sequence(prompt)
    hand.add(first, len(prompt))
    hand.share(second, first, len(prompt) // hand.size)
    hand.add(second, hand.left(second))
    hand.work.rows.reverse()
    for column in (hand.work.counts, hand.work.past, hand.work.padding):
        column.reverse()  # the reader's row first
    hand.work.tokens = second.ids(96, 100) + first.ids(0, 100)
    hand.work.samples = [3, 103]
    hand.work.sampled.reverse()
    hand.run()
    assert first.tokens == second.tokens == expected[:1]


POLICIES: dict[str, Callable[[], Any]] = {
    "static": lambda: Static(4),
    "padded static": lambda: Static(4, padded=True),
    "dynamic": lambda: Dynamic(4, 0.0),
    "vllm": lambda: Vllm(async_scheduling=False),
}


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("num_kv_blocks", [13, NUM_BLOCKS])
def test_under_every_policy_each_output_is_the_one_alone(
    exact: OpenVino, references: list[tuple[list[int], list[int]]], name: str, num_kv_blocks: int
) -> None:
    limits = Limits(
        max_num_seqs=4,
        max_num_batched_tokens=300,
        max_model_len=300,
        block_size=32,
        num_kv_blocks=num_kv_blocks,
    )
    live = Live(POLICIES[name](), exact, limits)
    sequences = []
    for id, (prompt, _) in enumerate(references):
        ends = range(32, len(prompt) + 1, 32)
        keys = array("q", (abs(hash(tuple(prompt[:end]))) for end in ends))
        sequences.append(Sequence(Request(id, 0.0, len(prompt), NUM_TOKENS, prefix=keys), prompt))
        live.add(sequences[-1])
    live.drain()
    live.run()
    assert [s.tokens for s in sequences] == [tokens for _, tokens in references]
    if name == "vllm" and num_kv_blocks < NUM_BLOCKS:
        assert any(s.request.preemptions for s in sequences)


# --- as it is by default ------------------------------------------------------------


def test_the_same_steps_give_the_same_outputs(fast: OpenVino) -> None:
    outputs = []
    for _ in range(2):
        random = Random(6)
        sequences = [sequence(prompt) for prompt in prompts(random, fast.vocab_size, 4)]
        storm(Hand(fast, random), sequences.copy(), random)
        outputs.append([s.tokens for s in sequences])
    assert outputs[0] == outputs[1]


def test_a_text_goes_on_as_it_does_alone(fast: OpenVino) -> None:
    """A prompt whose end is sure: rounding cannot change it."""
    counting = [token for _ in range(12) for token in range(1000, 1008)]
    sequences = [sequence(counting[:-cut]) for cut in range(1, 9)]
    storm(Hand(fast, Random(7)), sequences.copy(), Random(7), most=4)
    for cut, s in enumerate(sequences, 1):
        going_on = (counting[-cut:] + counting)[:NUM_TOKENS]
        assert s.tokens == going_on


def test_a_step_in_which_nothing_is_sampled_gives_nothing(fast: OpenVino) -> None:
    hand, s = Hand(fast, Random(8)), sequence(list(range(50)))
    hand.add(s, 20)
    hand.run()
    assert s.tokens == []


def test_another_number_of_logits_than_asked_for_is_an_error_and_the_engine_goes_on(fast: OpenVino) -> None:
    hand, s = Hand(fast, Random(10)), sequence(list(range(50)))
    hand.add(s, 50)
    hand.work.samples.clear()
    with pytest.raises(EngineError, match="computed 0 rows of logits, but 1 were asked for"):
        hand.run()
    hand.work.samples.append(49)
    hand.run()
    assert len(s.tokens) == 1


def test_other_threads_run_during_a_step(fast: OpenVino) -> None:
    hand, s = Hand(fast, Random(9)), sequence(list(range(1000)))
    hand.add(s, 1000)
    ticks: list[float] = []
    has_ended = threading.Event()

    def tick() -> None:
        while not has_ended.wait(0.001):
            ticks.append(time.perf_counter())

    other = threading.Thread(target=tick)
    other.start()
    begin = time.perf_counter()
    hand.run()
    end = time.perf_counter()
    has_ended.set()
    other.join()
    assert sum(begin < at < end for at in ticks) >= 10


def test_the_clock_does_not_run_backwards_and_sleep_reaches_its_instant(fast: OpenVino) -> None:
    before = fast.now()
    fast.sleep(before + 0.02)
    assert fast.now() >= before + 0.02
    fast.sleep(before)


def test_what_it_was_loaded_with_can_be_read(fast: OpenVino) -> None:
    assert fast.capacity.num_kv_blocks == NUM_BLOCKS
    assert fast.threads == 1
    assert fast.kv_bytes_per_block > 0
    assert fast.versions["openvino"].startswith(ov.__version__.split("-")[0])


# --- errors -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"threads": 0}, InputError, "threads is 0"),
        ({"kv_cache_precision": "fp8"}, InputError, "kv_cache_precision is 'fp8'"),
        ({"exact": True}, InputError, "exact with kv_cache_precision 'u8' .* give 'f16'"),
        (
            {"exact": True, "kv_cache_precision": "f16", "threads": 2},
            InputError,
            "exact with 2 threads .* give 1",
        ),
        ({"num_kv_blocks": 0}, LimitError, "num_kv_blocks is 0"),
        ({"max_model_len": 0}, LimitError, "max_model_len is 0"),
        ({}, InputError, "no such file; give the openvino_model.xml"),
    ],
)
def test_a_value_that_cannot_be_is_an_error(
    tmp_path: Path, options: dict[str, Any], error: type[BatchwrightError], text: str
) -> None:
    with pytest.raises(error, match=text):
        load(tmp_path / "openvino_model.xml", **options)


def test_a_file_that_is_no_model_is_an_error_of_one_line(tmp_path: Path) -> None:
    wrong = tmp_path / "openvino_model.xml"
    wrong.write_text("<net", encoding="utf-8")
    with pytest.raises(EngineError) as raised:
        load(wrong)
    assert str(wrong) in str(raised.value) and "\n" not in str(raised.value)


def misfit() -> str:
    return f"OpenVINO {ov.__version__} .*; this engine is made for {openvino_network.SUPPORTED}"


def test_a_model_without_attention_is_an_error_that_names_the_versions(tmp_path: Path) -> None:
    number = ov.opset13.parameter([-1])
    ov.save_model(ov.Model([ov.opset13.relu(number)], [number]), tmp_path / "relu.xml")
    with pytest.raises(EngineError, match=misfit()):
        load(tmp_path / "relu.xml")


def test_an_openvino_without_the_transformation_is_an_error_that_names_the_versions(
    ir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import openvino._offline_transformations as transformations

    monkeypatch.delattr(transformations, "paged_attention_transformation")
    with pytest.raises(EngineError, match=misfit()):
        load(ir)


@pytest.mark.parametrize("change", ["a name", "a type", "one more", "one less"])
def test_other_inputs_than_expected_are_an_error_that_names_them(
    ir: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    flat = dict(openvino_network.FLAT)
    kind = flat.pop("past_lens")
    flat |= {
        "a name": {"other": kind},
        "a type": {"past_lens": ("i64", 1)},
        "one more": {"past_lens": kind, "other": kind},
        "one less": {},
    }[change]
    monkeypatch.setattr(openvino_network, "FLAT", flat)
    with pytest.raises(EngineError, match=rf"{misfit()}".replace(".*", ".*(other|past_lens).*")):
        load(ir)


def test_without_the_package_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.delitem(sys.modules, "batchwright.engines.openvino_network")
    monkeypatch.delattr("batchwright.engines.openvino_network")
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(EngineError, match=r"needs openvino .*; pip install 'batchwright\[live\]'$"):
        load(tmp_path / "openvino_model.xml")
