"""What is read of a GGUF file, and what becomes of a file that is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("tokenizers", reason="needs the extra live or llamacpp")
pytest.importorskip("jinja2", reason="needs the extra live or llamacpp")

from batchwright.checkpoint.folder import write_tokenizer
from batchwright.checkpoint.gguf import read_gguf
from batchwright.errors import InputError
from batchwright.hardware import find_model
from small_checkpoint import byte_level_keys, trained, write_gguf

pytestmark = pytest.mark.pure

WORDS = st.text(max_size=8)
PLAIN = st.integers(0, 2**32 - 1) | st.booleans() | st.floats(width=32, allow_nan=False) | WORDS
LISTS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5) | st.lists(WORDS, min_size=1, max_size=5)
KEYS = st.dictionaries(WORDS, PLAIN | LISTS, max_size=4)
ON_DISK = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@ON_DISK
@given(keys=KEYS)
def test_every_key_is_read_as_it_was_written(tmp_path: Path, keys: dict[str, Any]) -> None:
    tensors = {"a.weight": np.zeros((2, 3), np.float32), "b": np.zeros(1, np.float32)}
    found = read_gguf(write_gguf(tmp_path / "x.gguf", keys, tensors))
    assert found.keys == keys and found.tensors == {"a.weight", "b"}


def test_a_file_that_is_cut_in_its_head_is_refused(tmp_path: Path) -> None:
    keys = {"a": [1, 2, 3], "b": "text", "c": ["x", "y"]}
    whole = write_gguf(tmp_path / "x.gguf", keys, {"w": np.zeros(1, np.float32)}).read_bytes()
    head = whole.rindex(b"w") + 1 + 4 + 8 + 4 + 8
    for size in range(head):
        (tmp_path / "x.gguf").write_bytes(whole[:size])
        with pytest.raises(InputError, match="no whole GGUF"):
            read_gguf(tmp_path / "x.gguf")


@ON_DISK
@given(at=st.integers(0, 200), byte=st.integers(0, 255))
def test_a_damaged_file_is_read_or_refused(tmp_path: Path, at: int, byte: int) -> None:
    data = bytearray(
        write_gguf(tmp_path / "x.gguf", {"a": [1, 2], "b": "text", "c": ["x", "y"]}).read_bytes()
    )
    data[at % len(data)] = byte
    (tmp_path / "x.gguf").write_bytes(data)
    try:
        read_gguf(tmp_path / "x.gguf")
    except InputError as error:
        assert "fetch it again" in str(error)


@pytest.mark.parametrize("data", [b"GGUF\x01\0\0\0", b"GGML" + bytes(30), b"GGUF\0\0\0\x03" + bytes(30)])
def test_another_version_or_file_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.gguf").write_bytes(data)
    with pytest.raises(InputError, match="version 2 or 3"):
        read_gguf(tmp_path / "x.gguf")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.gguf: cannot be read"):
        read_gguf(tmp_path / "none.gguf")


@pytest.mark.parametrize("is_tied", [True, False])
def test_the_configuration_is_that_of_the_model(tmp_path: Path, is_tied: bool) -> None:
    """The cost model reads it, too."""
    tensors = {"token_embd.weight" if is_tied else "output.weight": np.zeros(1, np.float32)}
    write_tokenizer(read_gguf(write_gguf(tmp_path / "x.gguf", byte_level_keys(), tensors)), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["tie_word_embeddings"], config["eos_token_id"]) == (is_tied, 0)
    model = find_model(tmp_path)
    assert (model.layers, model.hidden, model.heads, model.kv_heads) == (1, 64, 2, 1)
    assert (model.vocab, model.max_position_embeddings) == (len(trained()[0]), 256)
