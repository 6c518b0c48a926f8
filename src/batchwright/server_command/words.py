"""A pasted shell line as words: what stands before the server's name, its environment, and its arguments."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Final

from batchwright.errors import InputError

LONGEST: Final = 1 << 16  # characters
_CONTINUED: Final = re.compile(r"[\\^`][ \t]*\r?\n")
_COMMENT: Final = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
_PROMPT: Final = re.compile(r"^\s*(?:\(\S*\)\s*)?[$>]\s+")
_ASSIGNMENT: Final = re.compile(r"(?:export\s+)?([A-Za-z_]\w*)=(.*)", re.DOTALL)
_REDIRECTED: Final = re.compile(r"(?<=\s)(?:\d?>>?|&>)&?[ \t]*[^\s'\";|&]+")
_ENDS: Final = re.compile(r"[|&;<>()]+")
_VERSION: Final = re.compile(r"(?:^|[^\d.])v?(\d+\.\d+(?:\.\d+)?)(?![\d])")
MODULES: Final = {
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.api_server": "vllm",
    "vllm.entrypoints.cli.main": "vllm",
    "sglang.launch_server": "sglang",
    "sglang.srt.server": "sglang",
}
PROGRAMS: Final = {
    "vllm": "vllm", "sglang": "sglang", "text-generation-launcher": "tgi", "trtllm-serve": "tensorrt_llm",
}  # fmt: skip
IMAGES: Final = {
    "vllm-openai": "vllm", "vllm": "vllm", "sglang": "sglang", "text-generation-inference": "tgi",
    "tensorrt-llm": "tensorrt_llm",
}  # fmt: skip
_CONTAINERS: Final = ("docker", "podman", "nerdctl")
_SERVES: Final = ("serve",)
KNOWN: Final = "vllm serve, python -m sglang.launch_server, text-generation-launcher or trtllm-serve"


@dataclass(frozen=True, kw_only=True)
class Words:
    """`engine`: by the name of its policy.  `version`: as an image's tag has it, or `vllm@0.19`; else None.

    `arguments`: after the name.  `environment`: what was set in front, or by -e of docker.
    """

    engine: str
    version: str | None
    arguments: list[str]
    environment: dict[str, str]


def words_of(text: str) -> Words:
    """Raises InputError if no server is started in the text, or it is no shell line."""
    words = _split(text)
    environment: dict[str, str] = {}
    for place, word in enumerate(words):
        assigned = _ASSIGNMENT.fullmatch(word)
        if assigned is not None:
            environment[assigned[1]] = assigned[2]
        found = _program(words, place) or _image(words, place)
        if found is not None:
            engine, version, start = found
            inner = _inside(words[start:], engine)
            return Words(engine=engine, version=version, arguments=inner, environment=environment)
    start_of = " ".join(words[:3])
    raise InputError(f"--like {start_of[:60]!r} starts no server that is known; give a line with {KNOWN}")


def _split(text: str) -> list[str]:
    if len(text) > LONGEST:
        raise InputError(f"--like has {len(text)} characters, over {LONGEST}; give one server's command")
    plain = _REDIRECTED.sub("", _PROMPT.sub("", _CONTINUED.sub(" ", _COMMENT.sub("", text))))
    lexer = shlex.shlex(plain, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError as error:
        reason = str(error).lower()
        raise InputError(f"--like has {reason}; give the command as one quoted text") from None
    if not words:
        raise InputError(f"--like is empty; give a line with {KNOWN}")
    return words


def _program(words: list[str], place: int) -> tuple[str, str | None, int] | None:
    """Engine, version and the place of its first argument, if the word at `place` starts a server."""
    word = words[place]
    name, _, version = word.partition("@")
    base = name.rsplit("/", 1)[-1]
    after = words[place + 1] if place + 1 < len(words) else ""
    if word == "-m" and after in MODULES:
        return MODULES[after], None, place + 2
    if base not in PROGRAMS or (place > 0 and words[place - 1] in ("-m", "--entrypoint")):
        return None
    engine = PROGRAMS[base]
    if engine in ("vllm", "sglang"):
        return (engine, version or None, place + 2) if after in _SERVES else None
    return engine, version or None, place + 1 + (after in _SERVES)


def _image(words: list[str], place: int) -> tuple[str, str | None, int] | None:
    """The same, if it is the image of a container."""
    if not any(word.rsplit("/", 1)[-1] in _CONTAINERS for word in words[:place]):
        return None
    name, _, tag = words[place].rsplit("/", 1)[-1].partition(":")
    if "/" not in words[place] and not tag:
        return None
    if name in ("release", "server") and "tensorrt-llm" in words[place]:
        name = "tensorrt-llm"
    if name not in IMAGES or words[place - 1] in ("-v", "--volume", "--name"):
        return None
    version = _VERSION.search(tag)
    return IMAGES[name], version[1] if version else None, place + 1


def _inside(arguments: list[str], engine: str) -> list[str]:
    """The server's own arguments, up to what the shell does with it."""
    ends = next((i for i, word in enumerate(arguments) if _ENDS.fullmatch(word)), len(arguments))
    own = arguments[:ends]
    for place in range(min(4, len(own))):  # an image may be given the whole command
        found = _program(own, place)
        if found is not None:
            if found[0] != engine:
                raise InputError(f"--like starts {found[0]} in an image of {engine}; give one of the two")
            return own[found[2] :]
    return own
