"""From a body to a sequence: prompt ids, prefix keys, where it ends, how tokens are chosen."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count
from random import getrandbits
from typing import Any, Final, Protocol

from batchwright.checkpoint.stream import Spelling, TextStream
from batchwright.engines.sampling import Sampling
from batchwright.engines.sequence import Sequence
from batchwright.errors import InputError
from batchwright.limits import Limits
from batchwright.request import NO_KEYS, Request
from batchwright.server.bodies import Body, ChatBody, CompletionBody, read
from batchwright.server.refusal import Refusal

COMPLETION: Final = 16  # tokens, where a client of /v1/completions does not say
_LARGEST_KEY: Final = (1 << 63) - 1


class Tokenizes(Spelling, Protocol):
    """What the server needs of a tokenizer."""

    vocab_size: int

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end a sequence."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The ids of `text`."""

    def encode_chat(
        self, messages: Iterable[Mapping[str, Any]], *, add_generation_prompt: bool = True
    ) -> list[int]:
        """The ids of a conversation.  Raises InputError."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request, understood.  `pieces`: the text of each token, if the engine's thread makes it."""

    sequence: Sequence
    text: TextStream
    pieces: deque[str] | None
    is_streamed: bool
    has_usage: bool  # a last event with the usage
    has_usages: bool  # a usage with every event


class Reader:
    """Understands requests.  `clock`: the engine's."""

    def __init__(self, tokenizer: Tokenizes, limits: Limits, name: str, clock: Callable[[], float]) -> None:
        self._tokenizer = tokenizer
        self._limits = limits
        self._name = name
        self._clock = clock
        self._ids = count()

    def completion(self, body: bytes) -> Asked:
        """A request to `/v1/completions`.  Raises Refusal."""
        asked = read(body, CompletionBody)
        self.check_model(asked.model)
        prompt = self._prompt(asked.prompt)
        return self._asked(asked, prompt, asked.max_tokens, COMPLETION)

    def chat(self, body: bytes) -> Asked:
        """A request to `/v1/chat/completions`.  Raises Refusal."""
        asked = read(body, ChatBody)
        self.check_model(asked.model)
        try:
            prompt = self._tokenizer.encode_chat(asked.messages)
        except InputError as error:
            raise Refusal(400, str(error), param="messages") from None
        most = asked.max_tokens if asked.max_completion_tokens is None else asked.max_completion_tokens
        return self._asked(asked, prompt, most, self._limits.longest)

    def check_model(self, name: str | None) -> None:
        """Raises Refusal unless `name` is the model's, or none is given."""
        if name is not None and name != self._name:
            raise Refusal(
                404,
                f"there is no model {name[:200]!r} here; this server has {self._name!r}",
                param="model",
                code="model_not_found",
            )

    def _prompt(self, given: str | list[str | int | list[int]]) -> list[int]:
        """The ids of the one prompt that is given."""
        if isinstance(given, str):
            return self._tokenizer.encode(given)
        ids = [id for id in given if isinstance(id, int)]
        if len(ids) < len(given):
            return self._only(given)
        self._check_ids("prompt", ids)
        return ids

    def _only(self, prompts: list[str | int | list[int]]) -> list[int]:
        """The ids of the only one of several prompts."""
        only = prompts[0]
        if len(prompts) > 1 or isinstance(only, int):
            raise Refusal(
                400,
                f"prompt is a list of {len(prompts)}, but one prompt is supported; send a request for each",
                param="prompt",
            )
        return self._prompt(only if isinstance(only, str) else list(only))

    def _check_ids(self, param: str, ids: list[int]) -> None:
        last = self._tokenizer.vocab_size - 1
        for id in ids:
            if not 0 <= id <= last:
                raise Refusal(400, f"{param}: token id {id} is outside 0 to {last}", param=param)

    def _asked(self, asked: Body, prompt: list[int], most: int | None, default: int) -> Asked:
        stops = [asked.stop] if isinstance(asked.stop, str) else asked.stop
        self._check_ids("stop_token_ids", asked.stop_token_ids)
        stop_ids = frozenset(asked.stop_token_ids)
        if not asked.ignore_eos:
            stop_ids |= self._tokenizer.eos_ids
        text = TextStream(
            self._tokenizer,
            prompt,
            stops=stops,
            min_tokens=asked.min_tokens,
            skip_special_tokens=asked.skip_special_tokens,
        )
        pieces: deque[str] | None = deque() if any(stops) else None
        sequence = Sequence(
            self._request(prompt, self._max_tokens(len(prompt), most, default, asked.min_tokens), asked),
            prompt,
            stop_ids=stop_ids,
            min_tokens=asked.min_tokens,
            watch=None if pieces is None else _watch(text, pieces),
            sampling=_sampling(asked),
        )
        options = asked.stream_options
        if options is not None and not asked.stream:
            raise Refusal(400, "stream_options is given, but stream is not true", param="stream_options")
        return Asked(
            sequence=sequence,
            text=text,
            pieces=pieces,
            is_streamed=asked.stream,
            has_usage=options is not None and options.include_usage,
            has_usages=options is not None and options.include_usage and options.continuous_usage_stats,
        )

    def _max_tokens(self, prompt: int, most: int | None, default: int, least: int) -> int:
        """The limit of the output.  Raises Refusal if it does not fit."""
        longest = self._limits.longest
        if prompt == 0:
            raise Refusal(400, "the prompt has no tokens; send at least one", param="prompt")
        if prompt >= longest:
            raise Refusal(
                400,
                f"the prompt has {prompt} tokens, but max_model_len is {longest}, output included; "
                "send a shorter one",
                code="context_length_exceeded",
            )
        if most is not None and prompt + most > longest:
            raise Refusal(
                400,
                f"the prompt has {prompt} tokens and max_tokens is {most}, together {prompt + most}, but "
                f"max_model_len is {longest}; ask for at most {longest - prompt}",
                param="max_tokens",
                code="context_length_exceeded",
            )
        found = min(default, longest - prompt) if most is None else most
        if least > found:
            raise Refusal(
                400, f"min_tokens is {least}, but max_tokens is {found}; lower it", param="min_tokens"
            )
        return found

    def _request(self, prompt: list[int], max_tokens: int, asked: Body) -> Request:
        limits = self._limits
        prefix = prefix_keys(prompt, limits.block_size) if limits.enable_prefix_caching else NO_KEYS
        return Request(
            next(self._ids),
            self._clock(),
            len(prompt),
            max_tokens,
            max_tokens,
            priority=asked.priority,
            prefix=prefix,
        )


def prefix_keys(ids: list[int], block_size: int) -> array[int]:
    """A key for each full block: of all tokens up to the end of it."""
    keys, key = array("q"), b""
    for end in range(block_size, len(ids) + 1, block_size):
        block = array("q", ids[end - block_size : end])
        key = blake2b(key + block.tobytes(), digest_size=16).digest()
        keys.append(int.from_bytes(key[:8], "little") & _LARGEST_KEY)
    return keys


def _watch(text: TextStream, pieces: deque[str]) -> Callable[[list[int]], bool]:
    """Makes the text of each token, and stops at a stop string."""

    def watch(tokens: list[int]) -> bool:
        pieces.append(text.push(tokens[-1]))
        return text.matched is not None

    return watch


def _sampling(asked: Body) -> Sampling | None:
    """None: greedy.  Raises Refusal."""
    if asked.temperature == 0:
        return None
    seed = getrandbits(63) if asked.seed is None else asked.seed % (1 << 64)
    try:
        return Sampling(
            temperature=asked.temperature, top_p=asked.top_p, top_k=max(asked.top_k, 0), seed=seed
        )
    except InputError as error:
        raise Refusal(400, str(error)) from None
