"""A model's tokenizer: the folder that Hugging Face's libraries read, without them.

tokenizer.json          the vocabulary and how text is cut
tokenizer_config.json   its special tokens by name, and the chat template (or chat_template.jinja)
generation_config.json  the tokens that end a sequence (or config.json)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from batchwright.checkpoint.needs import need
from batchwright.checkpoint.pieces import Pieces
from batchwright.errors import InputError

if TYPE_CHECKING:
    from batchwright.checkpoint.chat import Chat, Message

NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class Tokenizer:
    """Text to token ids and back.  Special tokens in a text are read as what they are.

    Raises InputError if `folder` has no tokenizer that can be read.
    """

    def __init__(self, folder: Path) -> None:
        need("tokenizers")
        from tokenizers import Tokenizer as Fast

        self.folder = folder
        file = folder / "tokenizer.json"
        if not file.is_file():
            raise InputError(f"{folder}: has no tokenizer.json; give a folder that has one")
        try:
            self._fast = Fast.from_file(str(file))
        except Exception as error:  # the library raises nothing more precise
            raise InputError(f"{file}: cannot be read ({error}); fetch it again") from None
        self._fast.no_truncation()
        self._fast.no_padding()
        self._config = read_json(folder / "tokenizer_config.json")
        self.vocab_size: int = self._fast.get_vocab_size()

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The ids of `text`; with what the model wants around it (BOS), but never two BOS.

        Raises InputError if `text` is no Unicode: JSON may hold half of a surrogate pair.
        """
        try:
            ids: list[int] = self._fast.encode(text, add_special_tokens=add_special_tokens).ids
        except TypeError:  # what the library calls it
            raise InputError(
                "the text has half of a surrogate pair, which is no character; correct it"
            ) from None
        is_double = add_special_tokens and self._added_bos and ids[:2] == self._added_bos * 2
        return ids[1:] if is_double else ids

    def encode_chat(self, messages: Iterable[Message], *, add_generation_prompt: bool = True) -> list[int]:
        """The ids of a conversation in the model's chat template.  Raises InputError."""
        if self.chat is None:
            raise InputError(f"{self.folder}: the model has no chat template; send a prompt, not messages")
        text = self.chat.render(messages, add_generation_prompt=add_generation_prompt)
        return self.encode(text, add_special_tokens=False)

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """The text of `ids`; bytes that are no UTF-8 become U+FFFD."""
        pieces = self.pieces(skip_special_tokens)
        text = b"".join(pieces[id] for id in ids).decode(errors="replace")
        return text.removeprefix(" ") if self.strips_space else text

    def pieces(self, skip_special_tokens: bool = True) -> Mapping[int, bytes]:
        """The bytes that each id stands for, where a text goes on."""
        return self._plain_pieces if skip_special_tokens else self._all_pieces

    @property
    def strips_space(self) -> bool:
        """Does a text lose the space that it begins with?"""
        return self._all_pieces.strips_space

    @cached_property
    def chat(self) -> Chat | None:
        """The chat template; None if the model has none."""
        template = self._template()
        if template is None:
            return None
        need("jinja2")
        from batchwright.checkpoint.chat import Chat

        return Chat(template, self._named)

    @cached_property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end a sequence: those of the configuration, and what ends an assistant's turn."""
        ids = self._configured_eos()
        texts = [self._named.get("eos_token"), self.chat and self.chat.end_token(self._special_texts)]
        return frozenset(ids) | {id for text in texts if text and (id := self._id(text)) is not None}

    @cached_property
    def plain_ids(self) -> npt.NDArray[np.int64]:
        """All ids that are text, in order: no special token, nor any that was added to the vocabulary."""
        ids = set(self._fast.get_vocab(with_added_tokens=True).values())
        return np.array(sorted(ids - set(self._fast.get_added_tokens_decoder())), np.int64)

    @cached_property
    def _special_texts(self) -> frozenset[str]:
        added = self._fast.get_added_tokens_decoder().values()
        return frozenset(token.content for token in added if token.special)

    @cached_property
    def _named(self) -> dict[str, str]:
        """Special tokens by name, as a template may ask for them."""
        given = {**read_json(self.folder / "special_tokens_map.json"), **self._config}
        texts = {name: _content(given.get(name)) for name in NAMED_TOKENS}
        return {name: text for name, text in texts.items() if text is not None}

    @cached_property
    def _plain_pieces(self) -> Pieces:
        return Pieces(self._fast, skip=self._special_texts)

    @cached_property
    def _all_pieces(self) -> Pieces:
        return Pieces(self._fast)

    @cached_property
    def _added_bos(self) -> list[int]:
        """The BOS that the model wants before every text; empty if it wants none."""
        before = self._fast.encode("", add_special_tokens=True).ids[:1]
        return before if before == [self._id(self._named.get("bos_token", ""))] else []

    def _id(self, text: str) -> int | None:
        id: int | None = self._fast.token_to_id(text)
        return id

    def _configured_eos(self) -> list[int]:
        for name in ("generation_config.json", "config.json"):
            given = read_json(self.folder / name).get("eos_token_id")
            if given is not None:
                return list(given) if isinstance(given, list) else [given]
        return []

    def _template(self) -> str | None:
        file = self.folder / "chat_template.jinja"
        if file.is_file():
            return file.read_text(encoding="utf-8")
        given = self._config.get("chat_template")
        if isinstance(given, list):  # several by name
            given = {entry["name"]: entry["template"] for entry in given}.get("default")
        return given


def read_json(file: Path) -> dict[str, Any]:
    """The keys of a JSON file; none if it is not there.  Raises InputError if it is no JSON object."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file}: cannot be read ({error}); fetch it again") from None
    if not isinstance(found, dict):
        raise InputError(f"{file}: is no JSON object; fetch it again")
    return found


def _content(token: Any) -> str | None:
    """The text of a special token, which is written plainly or with its settings."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None
