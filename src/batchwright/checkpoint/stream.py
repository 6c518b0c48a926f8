"""Token ids to text as they come.

Text is given out when it is certain: a character once all of its bytes are there, and text that may
begin a stop string once it does not.  What was given out is never taken back.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from batchwright.errors import InputError

_Utf8: Final = getincrementaldecoder("utf-8")
_LONGEST: Final = 4  # bytes of a character, so at most as many tokens before it is whole


class Spelling(Protocol):
    """What text needs to know of a tokenizer."""

    @property
    def strips_space(self) -> bool:
        """Does a text lose the space that it begins with?"""

    def pieces(self, skip_special_tokens: bool = True) -> Mapping[int, bytes]:
        """The bytes that each id stands for, where a text goes on."""


class Detokenizer:
    """The text of one sequence.  All that it gives out, together, is `Tokenizer.decode` of all ids.

    `prompt`: the ids before the first one, if any; the text then goes on, so no space is taken from
    its front, and the first ids may complete a character.  Constant time per token.
    """

    def __init__(
        self, tokenizer: Spelling, prompt: Sequence[int] = (), *, skip_special_tokens: bool = True
    ) -> None:
        self._pieces = tokenizer.pieces(skip_special_tokens)
        self._decode = _Utf8("replace").decode
        self._strips = tokenizer.strips_space and not prompt
        for id in prompt[-_LONGEST:]:
            self._decode(self._pieces[id])

    def push(self, id: int) -> str:
        """The text that is certain with this token, and was not before."""
        text = self._decode(self._pieces[id])
        if self._strips and text:
            self._strips = False
            return text.removeprefix(" ")
        return text

    def flush(self) -> str:
        """The rest, when no token follows: U+FFFD if a character was left incomplete."""
        return self._decode(b"", True)


class StopStrings:
    """Text up to the first stop string: the one that is whole first, or the longest of those.

    `matched` is that string, once it was met; all after it is dropped.  How the text is cut into pieces
    makes no difference.  Raises InputError on an empty one.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if "" in stops:
            raise InputError("a stop string is empty, which every text begins with; leave it out")
        self.matched: str | None = None
        self._stops = list(stops)
        self._starts = {stop[:length] for stop in self._stops for length in range(1, len(stop))}
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""  # may begin a stop string

    def push(self, piece: str, *, may_stop: bool = True) -> str:
        """The text that is certain to come before any stop string, and was not before.

        Not `may_stop`: a stop string that ends in this piece is text like any other.
        """
        if not self._stops:
            return piece
        if self.matched is not None or not piece:
            return ""
        text, fresh = self._held + piece, len(self._held)
        if may_stop and (found := self._first(text, fresh)) is not None:
            start, self.matched, self._held = found[1], text[found[1] : found[0]], ""
            return text[:start]
        certain = self._certain(text)
        self._held = text[certain:]
        return text[:certain]

    def flush(self) -> str:
        """The rest, when no text follows."""
        text, self._held = self._held, ""
        return text

    def _first(self, text: str, fresh: int) -> tuple[int, int] | None:
        """End and start of the stop string that ends first, behind `fresh`."""
        starts = ((stop, text.find(stop, max(0, fresh - len(stop) + 1))) for stop in self._stops)
        return min(((start + len(stop), start) for stop, start in starts if start >= 0), default=None)

    def _certain(self, text: str) -> int:
        """How much of `text` comes before all that may begin a stop string."""
        first = max(0, len(text) - self._longest + 1)
        return next((at for at in range(first, len(text)) if text[at:] in self._starts), len(text))


class TextStream:
    """The text of one answer: ids in, text out, up to a stop string.

    The first `min_tokens` tokens are not searched for stop strings.  Do not push the token that ended
    the sequence (EOS or another stop token): it is no part of the answer.
    """

    def __init__(
        self,
        tokenizer: Spelling,
        prompt: Sequence[int] = (),
        *,
        stops: Sequence[str] = (),
        min_tokens: int = 0,
        skip_special_tokens: bool = True,
    ) -> None:
        self._detokenizer = Detokenizer(tokenizer, prompt, skip_special_tokens=skip_special_tokens)
        self._stops = StopStrings(stops)
        self._unsearched = min_tokens

    @property
    def matched(self) -> str | None:
        """The stop string that was met, if any."""
        return self._stops.matched

    def push(self, id: int) -> str:
        """The text that is certain with this token, and was not before."""
        piece = self._detokenizer.push(id)
        if self._unsearched > 0:
            self._unsearched -= 1
            return self._stops.push(piece, may_stop=False)
        return self._stops.push(piece)

    def flush(self) -> str:
        """The rest, when no token follows."""
        return self._stops.push(self._detokenizer.flush()) + self._stops.flush()
