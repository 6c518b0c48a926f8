"""What a client may send to `/v1/completions` and `/v1/chat/completions`.

The names are OpenAI's, and vLLM's where OpenAI has none.  A parameter that this server does not
know, or knows and does not support, is refused by name: none is ignored that would change the answer.
"""

from __future__ import annotations

import reprlib
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from batchwright.errors import nearest
from batchwright.server.refusal import Refusal

Positive = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]
Stop = Annotated[str, Meta(max_length=500)]


class StreamOptions(Struct, kw_only=True, forbid_unknown_fields=True):
    """`continuous_usage_stats`: vLLM's, a usage with every event."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class Body(Struct, kw_only=True):
    """What both kinds of requests may ask for."""

    model: str | None = None
    max_tokens: Positive | None = None
    stop: Stop | Annotated[list[Stop], Meta(max_length=32)] = []
    stop_token_ids: list[int] = []
    ignore_eos: bool = False
    min_tokens: Natural = 0
    temperature: Annotated[float, Meta(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Meta(ge=-1)] = 0  # 0 and -1: all
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    priority: int = 0
    skip_special_tokens: bool = True
    stream: bool = False
    stream_options: StreamOptions | None = None


class CompletionBody(Body, kw_only=True):
    """`prompt`: text or token ids, alone or as the only one of a list."""

    prompt: str | list[str | int | list[int]]


class ChatBody(Body, kw_only=True):
    """`max_completion_tokens`: OpenAI's newer name of `max_tokens`."""

    messages: list[dict[str, Any]]
    max_completion_tokens: Positive | None = None


# They say something of the client, and nothing of the answer.
HARMLESS: Final = frozenset(
    {"user", "metadata", "store", "safety_identifier", "prompt_cache_key", "service_tier", "request_id"}
    | {"parallel_tool_calls"}  # there are no tools
)
# What is not supported, and the values that ask for nothing.
NEUTRAL: Final[dict[str, tuple[Any, ...]]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "prompt_logprobs": (),
    "logit_bias": ({},),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "length_penalty": (1,),
    "min_p": (0,),
    "use_beam_search": (False,),
    "response_format": ({"type": "text"},),
    "structured_outputs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "tools": ([],),
    "tool_choice": ("none", "auto"),  # without tools both mean none
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": ("none",),
    "verbosity": (),
    "web_search_options": (),
    "documents": ([],),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "bad_words": ([],),
    "allowed_token_ids": (),
    "include_stop_str_in_output": (False,),
    "spaces_between_special_tokens": (True,),
    "truncate_prompt_tokens": (),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "logits_processors": ([],),
    "cache_salt": (),
    "kv_transfer_params": (),
}
AnyBody = TypeVar("AnyBody", bound=Body)


def read(body: bytes, kind: type[AnyBody]) -> AnyBody:
    """The request in `body`.  Raises Refusal, which names what is wrong."""
    asked = _keys(body)
    known = [field.name for field in msgspec.structs.fields(kind)]
    for name in asked.keys() - set(known) - HARMLESS:
        _check_neutral(name, asked[name], known)
    try:
        return msgspec.convert(asked, kind)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from None


def _keys(body: bytes) -> dict[str, Any]:
    """The parameters that were given: null is not."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refusal(400, f"the body is no JSON: {error}") from None
    except RecursionError:
        raise Refusal(400, "the body is nested too deeply; send fewer levels") from None
    if not isinstance(found, dict):
        raise Refusal(400, 'the body is no JSON object; send one, such as {"prompt": "Hello"}')
    return {name: value for name, value in found.items() if value is not None}


def _check_neutral(name: str, value: Any, known: list[str]) -> None:
    """Raises Refusal unless `name`, which is not supported, asks for nothing."""
    if name not in NEUTRAL:
        said = reprlib.repr(name)
        raise Refusal(
            400, f"unknown parameter {said}{nearest(name[:80], [*known, *NEUTRAL])}", param=name[:80]
        )
    if any(value == item and isinstance(value, bool) == isinstance(item, bool) for item in NEUTRAL[name]):
        return
    only = " or ".join(repr(item) for item in NEUTRAL[name])
    advice = f"leave it out or give {only}" if only else "leave it out"
    raise Refusal(
        400, f"{name} is {reprlib.repr(value)}, which is not supported here; {advice}", param=name,
        code="unsupported_parameter",
    )  # fmt: skip


def _invalid(message: str) -> Refusal:
    """What msgspec says, with the parameter in front."""
    what, _, place = message.replace("`", "").partition(" - at $.")
    if not place:  # a field is missing
        return Refusal(400, f"{what[:1].lower()}{what[1:]}", param=what.rpartition(" ")[2])
    return Refusal(400, f"{place}: {what[:1].lower()}{what[1:]}", param=place)
