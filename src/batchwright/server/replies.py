"""The JSON of answers and streams, as OpenAI and vLLM write it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from uuid import uuid4

import msgspec

from batchwright.engines.sequence import Sequence

DONE: Final = b"data: [DONE]\n\n"
_encode: Final = msgspec.json.encode


class Form(Protocol):
    """How the replies of one kind look.  `reason`: None if more comes."""

    id: str
    chunk: str
    whole: str

    def opening(self) -> list[dict[str, Any]]:
        """The choices of events before the first token."""

    def part(self, text: str, reason: str | None) -> dict[str, Any]:
        """The choice of an event."""

    def all(self, text: str, reason: str) -> dict[str, Any]:
        """The choice of an answer that is not streamed."""


class Completion:
    """/v1/completions"""

    chunk = whole = "text_completion"

    def __init__(self) -> None:
        self.id = f"cmpl-{uuid4().hex}"

    def opening(self) -> list[dict[str, Any]]:
        return []

    def part(self, text: str, reason: str | None) -> dict[str, Any]:
        return {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}

    def all(self, text: str, reason: str) -> dict[str, Any]:
        return self.part(text, reason)


class Chat:
    """/v1/chat/completions"""

    chunk = "chat.completion.chunk"
    whole = "chat.completion"

    def __init__(self) -> None:
        self.id = f"chatcmpl-{uuid4().hex}"

    def opening(self) -> list[dict[str, Any]]:
        return [self._choice("delta", {"role": "assistant", "content": ""}, None)]

    def part(self, text: str, reason: str | None) -> dict[str, Any]:
        return self._choice("delta", {"content": text}, reason)

    def all(self, text: str, reason: str) -> dict[str, Any]:
        return self._choice("message", {"role": "assistant", "content": text, "refusal": None}, reason)

    def _choice(self, key: str, value: dict[str, Any], reason: str | None) -> dict[str, Any]:
        return {"index": 0, key: value, "logprobs": None, "finish_reason": reason}


@dataclass(kw_only=True)
class Replies:
    """The replies to one request.

    has_usage    a last event with the usage; the others have a null
    has_usages   a usage in every event
    """

    form: Form
    model: str
    sequence: Sequence
    has_usage: bool = False
    has_usages: bool = False
    created: int = field(default_factory=lambda: int(time.time()))
    _sent: int = 0  # tokens

    def whole(self, text: str, reason: str) -> bytes:
        """The answer in one piece."""
        choices = [self.form.all(text, reason)]
        return _encode(
            self._envelope(self.form.whole, choices) | {"usage": usage(self.sequence, self._num_tokens())}
        )

    def opening(self) -> bytes:
        """The events before the first token."""
        return b"".join(self._event([choice]) for choice in self.form.opening())

    def events(self, texts: list[str], reason: str) -> bytes:
        """One event for each token; `reason` with the last one, if no more come."""
        found = []
        for i, text in enumerate(texts, start=1):
            self._sent += 1
            is_last = bool(reason) and i == len(texts)
            found.append(self._event([self.form.part(text, reason if is_last else None)]))
        return b"".join(found)

    def closing(self) -> bytes:
        """The events after the last token."""
        if not self.has_usage:
            return DONE
        last = self._envelope(self.form.chunk, []) | {"usage": usage(self.sequence, self._sent)}
        return _line(last) + DONE

    def _event(self, choices: list[dict[str, Any]]) -> bytes:
        event = self._envelope(self.form.chunk, choices)
        if self.has_usages:
            event["usage"] = usage(self.sequence, self._sent)
        elif self.has_usage:
            event["usage"] = None
        return _line(event)

    def _envelope(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.form.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }

    def _num_tokens(self) -> int:
        return len(self.sequence.tokens)


def usage(s: Sequence, num_tokens: int) -> dict[str, Any]:
    """Tokens of prompt and output, and those of the prompt that the prefix cache had."""
    prompt = s.request.prompt
    return {
        "prompt_tokens": prompt,
        "completion_tokens": num_tokens,
        "total_tokens": prompt + num_tokens,
        "prompt_tokens_details": {"cached_tokens": min(s.request.cached, prompt)},
    }


def failure(body: dict[str, Any]) -> bytes:
    """The end of a stream that cannot go on."""
    return _line(body) + DONE


def _line(event: dict[str, Any]) -> bytes:
    return b"data: " + _encode(event) + b"\n\n"
