"""Messages to the text that a model was trained on: its chat template, a Jinja program.

The template comes with the model, so it runs in Jinja's sandbox, with what Hugging Face's
`apply_chat_template` offers it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from batchwright.errors import InputError

Message = Mapping[str, Any]  # role, content (text, a list of text parts, or None), and more
_PROBE: Final = "batchwright"  # what an assistant says, to see what the template writes after it


class _Generation(Extension):
    """`{% generation %}`, which marks what to train on, is what it encloses."""

    tags = {"generation"}  # noqa: RUF012  as Jinja declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Chat:
    """A chat template.  `tokens`: special tokens by name.  Raises InputError if it is no template."""

    def __init__(self, template: str, tokens: Mapping[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        try:
            self._takes_parts = _loops_over_content(environment.parse(template))
            self._template = environment.from_string(template)
        except TemplateError as error:
            raise InputError(f"the model's chat template is wrong: {error}; give another model") from None
        self._tokens = dict(tokens)

    def render(self, messages: Iterable[Message], *, add_generation_prompt: bool = True) -> str:
        """The text of a conversation, up to where the assistant speaks.  Raises InputError."""
        plain = [self._plain(index, message) for index, message in enumerate(messages)]
        if not plain:
            raise InputError("messages is empty; give at least one message")
        try:
            return self._template.render(
                messages=plain,
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **self._tokens,
            )
        except (TemplateError, TypeError, ValueError, LookupError, AttributeError) as error:
            raise InputError(f"the model's chat template refuses these messages: {error}") from None

    def end_token(self, special: Iterable[str]) -> str | None:
        """Which of the `special` tokens ends an assistant's turn, if any does."""
        turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": _PROBE}]
        try:
            after = self.render(turns, add_generation_prompt=False).rpartition(_PROBE)[2].lstrip()
        except InputError:
            return None
        return max((token for token in special if after.startswith(token)), key=len, default=None)

    def _plain(self, index: int, message: Message) -> dict[str, Any]:
        """A message whose content is what the template takes: text, or a list of parts."""
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise InputError(f"messages[{index}] has no role; give an object with role and content")
        texts = _texts(index, message.get("content"))
        if self._takes_parts and not isinstance(message.get("content"), str):
            return {**message, "content": [{"type": "text", "text": text} for text in texts]}
        return {**message, "content": "\n".join(texts)}


def _texts(index: int, content: Any) -> list[str]:
    """The texts of a content.  Source: vLLM, which joins them with line feeds."""
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise InputError(f"messages[{index}].content is neither text nor a list of parts")
    return [_text(index, number, part) for number, part in enumerate(content)]


def _text(index: int, number: int, part: Any) -> str:
    if isinstance(part, str):
        return part
    kind, text = (part.get("type"), part.get("text")) if isinstance(part, Mapping) else (None, None)
    if kind != "text" or not isinstance(text, str):
        raise InputError(
            f"messages[{index}].content[{number}] is of type {kind!r}; this server takes parts of type "
            "'text' with a text"
        )
    return text


def _loops_over_content(template: nodes.Template) -> bool:
    """Does the template take a content apart itself?  vLLM then gives it the parts, and so do we."""
    return any(_names_content(loop.iter) for loop in template.find_all(nodes.For))


def _names_content(source: nodes.Node) -> bool:
    if isinstance(source, nodes.Filter | nodes.Test) and source.node is not None:
        return _names_content(source.node)
    if isinstance(source, nodes.Getitem):
        return isinstance(source.arg, nodes.Const) and source.arg.value == "content"
    if isinstance(source, nodes.Getattr):
        return source.attr == "content"
    return isinstance(source, nodes.Name) and source.name == "content"


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
