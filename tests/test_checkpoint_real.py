"""The default model, where `batchwright model get` has put it: its ids are those of other tools."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("tokenizers", reason="needs the extra live or llamacpp")
pytest.importorskip("jinja2", reason="needs the extra live or llamacpp")

from batchwright.checkpoint import Checkpoint, TextStream, Tokenizer, find
from batchwright.cli.model import cache_folder
from batchwright.errors import InputError

pytestmark = pytest.mark.pure

SYSTEM = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712,
          8182, 2, 198]  # fmt: skip
HELLO = [19556, 216, 7906, 240, 178, 239, 230, 15107, 232, 227]  # "Hello 世界 🎉"
ANSWER = [1, 520, 9531, 198]


@pytest.fixture(scope="module")
def model() -> Checkpoint:
    given = os.environ.get("BATCHWRIGHT_CACHE")
    try:
        return find(None, "llamacpp", cache_folder(Path(given) if given else None))
    except InputError as error:
        pytest.skip(str(error))


def test_it_says_what_it_is(model: Checkpoint) -> None:
    assert (model.name, model.max_model_len) == ("SmolLM2-135M-Instruct", 8192)
    assert model.eos_ids == {2} and Tokenizer(model.tokenizer_dir).vocab_size == 49152


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("Hello 世界 🎉", HELLO),
        ("Hello  world", [19556, 216, 905]),
        ("it's 1234", [269, 506, 216, 33, 34, 35, 36]),
    ],
)
def test_its_ids_are_those_of_other_tools(model: Checkpoint, text: str, ids: list[int]) -> None:
    tokenizer = Tokenizer(model.tokenizer_dir)
    assert tokenizer.encode(text) == ids and tokenizer.decode(ids) == text


def test_its_chat_is_that_of_transformers(model: Checkpoint) -> None:
    ids = Tokenizer(model.tokenizer_dir).encode_chat([{"role": "user", "content": "Hello 世界 🎉"}])
    assert ids == [*SYSTEM, 1, 4093, 198, *HELLO, 2, 198, *ANSWER]


def test_its_text_streams_by_whole_characters(model: Checkpoint) -> None:
    stream = TextStream(Tokenizer(model.tokenizer_dir), stops=["🎉"])
    assert list(map(stream.push, HELLO)) == ["Hello", " ", "", "世", "", "", "界", " ", "", ""]
    assert stream.matched == "🎉" and stream.flush() == ""
