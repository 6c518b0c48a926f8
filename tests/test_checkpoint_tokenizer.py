"""Tokenizer, chat template and streamed text of a model's folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("tokenizers", reason="needs the extra live or llamacpp")
pytest.importorskip("jinja2", reason="needs the extra live or llamacpp")

from tokenizers import Tokenizer as Fast
from tokenizers import decoders, models, pre_tokenizers

from batchwright.checkpoint import Detokenizer, StopStrings, TextStream, Tokenizer
from batchwright.checkpoint.folder import write_tokenizer
from batchwright.checkpoint.gguf import Gguf
from batchwright.errors import InputError
from small_checkpoint import CHATML, byte_level_keys, sentencepiece_keys, trained

pytestmark = pytest.mark.pure

NO_TENSORS: frozenset[str] = frozenset()
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.text(
    "the fox't1 \n\r  ñ", max_size=40
)


def made(folder: Path, keys: dict[str, Any]) -> Tokenizer:
    write_tokenizer(Gguf(keys, NO_TENSORS), folder)
    return Tokenizer(folder)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return made(tmp_path_factory.mktemp("byte_level"), byte_level_keys())


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return made(tmp_path_factory.mktemp("sentencepiece"), sentencepiece_keys())


@pytest.fixture(scope="module")
def other() -> Fast:
    """The same vocabulary, cut by the library's own rules for GPT-2 with single digits."""
    tokens, merges = trained()
    pairs = [tuple(merge.split(" ")) for merge in merges]
    fast = Fast(models.BPE({token: id for id, token in enumerate(tokens)}, pairs))
    digits, words = (
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    )
    fast.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
    fast.decoder = decoders.ByteLevel()
    return fast


# --- ids -------------------------------------------------------------------------------------


@given(text=TEXTS)
def test_a_text_has_the_ids_that_the_library_gives_it(small: Tokenizer, other: Fast, text: str) -> None:
    assert small.encode(text) == other.encode(text).ids


@given(text=TEXTS)
def test_a_text_comes_back_as_it_was(small: Tokenizer, text: str) -> None:
    assert small.decode(small.encode(text)) == text


@given(text=TEXTS)
def test_a_text_comes_back_from_bytes_and_pieces(sentencepiece: Tokenizer, text: str) -> None:
    assert sentencepiece.decode(sentencepiece.encode(text)) == text.replace("\u2581", " ")


def test_half_of_a_surrogate_pair_is_refused(small: Tokenizer) -> None:
    with pytest.raises(InputError, match="half of a surrogate pair"):
        small.encode("fox\ud800")


def test_a_folder_that_cuts_or_fills_texts_does_neither_here(small: Tokenizer, tmp_path: Path) -> None:
    fast = Fast.from_file(str(small.folder / "tokenizer.json"))
    fast.enable_truncation(2)
    fast.enable_padding(length=9)
    fast.save(str(tmp_path / "tokenizer.json"))
    assert Tokenizer(tmp_path).encode("the quick fox") == small.encode("the quick fox")


def test_a_special_token_in_a_text_is_the_token_and_is_left_out_of_what_is_read(small: Tokenizer) -> None:
    ids = small.encode("fox<|end|>fox")
    assert ids.count(0) == 1
    assert small.decode(ids) == "foxfox"
    assert small.decode(ids, skip_special_tokens=False) == "fox<|end|>fox"


def test_plain_ids_are_all_but_the_special_ones(small: Tokenizer) -> None:
    assert small.plain_ids.tolist() == list(range(3, small.vocab_size))


def test_a_model_that_wants_bos_gets_one_and_never_two(sentencepiece: Tokenizer) -> None:
    assert sentencepiece.encode("the")[0] == 1
    assert sentencepiece.encode("the", add_special_tokens=False)[0] != 1
    assert sentencepiece.encode("<s>the").count(1) == 1
    assert sentencepiece.encode("<s><s>the").count(1) == 2  # the second is the user's


def test_a_model_that_wants_no_bos_keeps_those_of_the_text(small: Tokenizer) -> None:
    assert small.encode("<|start|><|start|>") == [1, 1]


def test_ids_beyond_the_vocabulary_are_no_text(small: Tokenizer) -> None:
    assert small.decode([*small.encode("fox"), 10_000]) == "fox"


# --- what the folder says --------------------------------------------------------------------


def test_what_ends_an_assistants_turn_ends_a_sequence(tmp_path: Path) -> None:
    """The configuration names another token, as Llama 3's does."""
    tokenizer = made(tmp_path, byte_level_keys(eos_token_id=2))
    assert tokenizer.eos_ids == {0, 2}
    assert json.loads((tmp_path / "generation_config.json").read_text())["eos_token_id"] == [0, 2]


def test_a_chat_template_of_its_own_file_comes_first(tmp_path: Path) -> None:
    made(tmp_path, byte_level_keys())
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}!")
    assert Tokenizer(tmp_path).encode_chat(HELLO) == Tokenizer(tmp_path).encode("hello!")


def test_the_default_of_several_templates_is_taken(tmp_path: Path) -> None:
    made(tmp_path, byte_level_keys())
    file = tmp_path / "tokenizer_config.json"
    several = [{"name": "tool", "template": "t"}, {"name": "default", "template": "d"}]
    file.write_text(json.dumps({**json.loads(file.read_text()), "chat_template": several}))
    assert Tokenizer(tmp_path).decode(Tokenizer(tmp_path).encode_chat(HELLO)) == "d"


def test_a_model_without_a_template_takes_no_messages(tmp_path: Path) -> None:
    keys = byte_level_keys()
    del keys["tokenizer.chat_template"]
    with pytest.raises(InputError, match="no chat template; send a prompt"):
        made(tmp_path, keys).encode_chat(HELLO)


@pytest.mark.parametrize(
    ("changed", "said"), [({"pre": "grok-9"}, "'grok-9'"), ({"model": "bert"}, "a 'bert' vocabulary")]
)
def test_a_vocabulary_of_an_unknown_kind_is_refused_with_a_way_out(
    tmp_path: Path, changed: dict[str, str], said: str
) -> None:
    with pytest.raises(InputError, match=said) as error:
        made(tmp_path, byte_level_keys(**changed))
    assert "own tokenizer.json" in str(error.value)


@pytest.mark.parametrize("make", [byte_level_keys, sentencepiece_keys])
def test_a_gguf_that_lacks_a_key_makes_a_folder_or_is_refused(
    tmp_path: Path, make: Callable[[], dict[str, Any]]
) -> None:
    for number, key in enumerate(make()):
        keys = make()
        del keys[key]
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            assert made(folder, keys).encode("the fox")
        except InputError as error:
            assert "own tokenizer.json" in str(error)


@pytest.mark.parametrize("changed", [{"bos_token_id": 10**6}, {"merges": ["no such"]}, {"token_type": [1]}])
def test_a_gguf_that_contradicts_itself_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="incomplete vocabulary"):
        made(tmp_path, byte_level_keys(**changed))


def test_a_decoder_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    fast = Fast(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    fast.decoder = decoders.WordPiece()
    fast.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(InputError, match="WordPiece"):
        Tokenizer(tmp_path).decode([0])


@pytest.mark.parametrize(("text", "said"), [(None, "no tokenizer.json"), ("{", "cannot be read")])
def test_a_folder_without_a_whole_tokenizer_is_refused(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(InputError, match=said):
        Tokenizer(tmp_path)


# --- chat ------------------------------------------------------------------------------------

HELLO = [{"role": "user", "content": "hello"}]
LONG = [{"role": "system", "content": "Be brief."}, *HELLO, {"role": "assistant", "content": "a"}, *HELLO]


def rendered(template: str, messages: list[dict[str, Any]], **tokens: str) -> str:
    from batchwright.checkpoint.chat import Chat

    return Chat(template, tokens).render(messages)


def test_a_conversation_becomes_the_text_of_the_template() -> None:
    assert rendered(CHATML, LONG) == (
        "<|start|>system\nBe brief.<|end|>\n<|start|>user\nhello<|end|>\n<|start|>assistant\na<|end|>\n"
        "<|start|>user\nhello<|end|>\n<|start|>assistant\n"
    )


def test_the_template_writes_the_special_tokens_and_nothing_adds_more(tmp_path: Path) -> None:
    tokenizer = made(tmp_path, sentencepiece_keys(chat_template="{{ bos_token }}the{{ eos_token }}"))
    assert tokenizer.encode_chat(HELLO)[0::2] == [1, 2]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{% if true %}\n  {% set x = 1 %}\nx{% endif %}", "x"),  # trim_blocks and lstrip_blocks
        ("{% generation %}x{% endgeneration %}", "x"),
        ("{% for i in [1, 2] %}{% if i == 2 %}{% break %}{% endif %}x{% endfor %}", "x"),
        ("{{ {'é': [1]} | tojson }}", '{"é": [1]}'),
        ("{{ strftime_now('x') }}", "x"),
        ("{{ bos_token }}{{ nothing }}x", "x"),
        ("{% if tools %}y{% endif %}x", "x"),
    ],
)
def test_a_template_finds_what_transformers_offers_it(template: str, expected: str) -> None:
    assert rendered(template, HELLO) == expected


PARTS = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]


def test_parts_are_joined_by_line_feeds_unless_the_template_takes_them_apart() -> None:
    assert rendered("{{ messages[0]['content'] }}", PARTS) == "a\nb"
    apart = (
        "{% for m in messages %}{% for part in m['content'] %}[{{ part['text'] }}]{% endfor %}{% endfor %}"
    )
    assert rendered(apart, PARTS) == "[a][b]"


@pytest.mark.parametrize("content", [None, "", []])
def test_a_message_may_say_nothing(content: object) -> None:
    assert rendered("{{ messages[0]['content'] }}", [{"role": "assistant", "content": content}]) == ""


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([], "messages is empty"),
        ([{"content": "a"}], r"messages\[0\] has no role"),
        ([*HELLO, {"role": "user", "content": 1}], r"messages\[1\].content is neither"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], r"content\[0\] is of type 'image_url'"),
        ([{"role": "nobody", "content": "a"}], "only user"),
    ],
)
def test_messages_that_cannot_be_rendered_are_refused(messages: list[dict[str, Any]], said: str) -> None:
    template = "{% if messages[0]['role'] == 'nobody' %}{{ raise_exception('only user') }}{% endif %}"
    with pytest.raises(InputError, match=said):
        rendered(template, messages)


def test_a_template_cannot_reach_what_is_around_it() -> None:
    with pytest.raises(InputError, match="unsafe"):
        rendered("{{ ''.__class__.__mro__[1].__subclasses__() }}", HELLO)
    with pytest.raises(InputError, match="template is wrong"):
        rendered("{% if %}", HELLO)


# --- text as it comes ------------------------------------------------------------------------

RARE = "\U00010fff"  # four bytes, each a token of its own


def pieces(tokenizer: Tokenizer, ids: list[int], **settings: Any) -> Iterator[str]:
    stream = Detokenizer(tokenizer, **settings)
    yield from map(stream.push, ids)
    yield stream.flush()


@pytest.mark.parametrize("skip", [True, False])
@given(ids=st.lists(st.integers(0, 499), max_size=40))
def test_pieces_of_any_ids_are_the_librarys_text_of_all(
    small: Tokenizer, other: Fast, ids: list[int], skip: bool
) -> None:
    kept = [id for id in ids if id > 2] if skip else ids
    expected = other.decode(kept, skip_special_tokens=False)
    assert "".join(pieces(small, ids, skip_special_tokens=skip)) == expected
    assert small.decode(ids, skip_special_tokens=skip) == expected


@given(text=TEXTS)
def test_pieces_of_a_text_are_the_text_and_never_take_anything_back(small: Tokenizer, text: str) -> None:
    found, ids = "", small.encode(text)
    for piece in pieces(small, ids):
        found += piece
        assert text.startswith(found)
    assert found == text


@given(ids=st.lists(st.integers(0, 278), max_size=40))
def test_pieces_of_bytes_and_words_are_the_text_of_all(sentencepiece: Tokenizer, ids: list[int]) -> None:
    assert "".join(pieces(sentencepiece, ids)) == sentencepiece.decode(ids)


@given(text=TEXTS)
def test_bytes_and_words_read_as_the_library_reads_them(sentencepiece: Tokenizer, text: str) -> None:
    ids = sentencepiece.encode(text)
    fast = Fast.from_file(str(sentencepiece.folder / "tokenizer.json"))
    assert sentencepiece.decode(ids) == fast.decode(ids)


def test_a_character_waits_for_all_of_its_bytes(small: Tokenizer) -> None:
    ids = small.encode(RARE)
    assert list(pieces(small, ids)) == ["", "", "", RARE, ""]
    assert list(pieces(small, ids[:3])) == ["", "", "", "\ufffd"]


def test_a_text_that_goes_on_keeps_its_space(sentencepiece: Tokenizer) -> None:
    the, fox = (sentencepiece.encode(word, add_special_tokens=False)[0] for word in ("the", "fox"))
    assert "".join(pieces(sentencepiece, [fox], prompt=[the])) == " fox"
    assert "".join(pieces(sentencepiece, [fox])) == "fox"


@given(at=st.integers(1, 3), before=st.integers(0, 6))
def test_the_first_tokens_may_complete_a_character_of_the_prompt(
    small: Tokenizer, at: int, before: int
) -> None:
    ids = small.encode("fox" * before + RARE)
    cut = len(ids) - at
    assert "".join(pieces(small, ids[cut:], prompt=ids[:cut])) == RARE


def in_pieces(text: str, cuts: list[int], stops: list[str]) -> tuple[str, str | None, list[str]]:
    """All that came out, the stop string, and the pieces."""
    finder, found, start = StopStrings(stops), [], 0
    for end in [*sorted(cut % (len(text) + 1) for cut in cuts), len(text)]:
        found.append(finder.push(text[start:end]))
        start = end
    found.append(finder.flush())
    return "".join(found), finder.matched, found


def first_stop(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The obvious way: letter by letter."""
    for end in range(1, len(text) + 1):
        whole = [stop for stop in stops if text[:end].endswith(stop)]
        if whole:
            longest = max(whole, key=len)
            return text[: end - len(longest)], longest
    return text, None


FEW_LETTERS = st.text("ab", max_size=12)


@given(
    text=FEW_LETTERS,
    cuts=st.lists(st.integers(0, 20), max_size=8),
    stops=st.lists(st.text("ab", min_size=1, max_size=4)),
)
def test_the_first_stop_string_is_found_however_the_text_is_cut(
    text: str, cuts: list[int], stops: list[str]
) -> None:
    assert in_pieces(text, cuts, stops)[:2] == first_stop(text, stops)


@given(text=FEW_LETTERS, stops=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1))
def test_only_what_may_begin_a_stop_string_is_held_back(text: str, stops: list[str]) -> None:
    finder, out = StopStrings(stops), ""
    for end, letter in enumerate(text, 1):
        out += finder.push(letter)
        if finder.matched is not None:
            return
        held = text[len(out) : end]
        assert not held or any(stop.startswith(held) for stop in stops)


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(InputError, match="stop string is empty"):
        StopStrings(["a", ""])


def test_nothing_comes_after_a_stop_string() -> None:
    finder = StopStrings(["END"])
    assert [finder.push("a EN"), finder.push("D b"), finder.push("c"), finder.flush()] == ["a ", "", "", ""]
    assert finder.matched == "END"


def test_the_first_tokens_are_not_searched(small: Tokenizer) -> None:
    ids = small.encode("fox") + small.encode("fox")
    stream = TextStream(small, stops=["fox"], min_tokens=len(ids) // 2)
    assert "".join(map(stream.push, ids)) + stream.flush() == "fox" and stream.matched == "fox"
    unsearched = TextStream(small, stops=["fox"], min_tokens=len(ids))
    assert "".join(map(unsearched.push, ids)) + unsearched.flush() == "foxfox"
    assert unsearched.matched is None


def test_a_stop_string_may_begin_before_the_tokens_that_are_searched() -> None:
    finder = StopStrings(["ab", "b"])
    assert finder.push("a", may_stop=False) == "" and finder.push("b") == "" and finder.matched == "ab"
    late = StopStrings(["aab", "a"])
    assert late.push("aa", may_stop=False) == "" and late.push("c") == "aac" and late.matched is None
