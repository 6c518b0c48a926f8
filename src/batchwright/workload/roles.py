"""Which column of a table is what: by its name, or by the mapping that a user gives.

    arrival     arrival, arrival_time, arrived_at, timestamp; a suffix _s, _ms, _us or _ns is the unit
    prompt      prompt, prompt_tokens, input_tokens, num_prefill_tokens, ...
    output      output, output_tokens, num_decode_tokens, ...
    optional    max_tokens, priority, client

Names are found in any case.  A mapping is written `arrival=ts,prompt=in,output=out`: role =
column.  A table without arrivals is one of lengths alone, unless a column looks like a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from shlex import quote
from typing import Final

from batchwright.errors import InputError, nearest
from batchwright.workload.cells import listed, shown
from batchwright.workload.table import Table
from batchwright.workload.units import UNITS

_CLOCKS: Final = ("arrival", "arrival_time", "arrived_at", "timestamp")
_TIMED: Final = {f"{clock}_{unit}" for clock in _CLOCKS for unit in UNITS}
_PROMPTS: Final = (
    "prompt", "prompt_tokens", "prompt_len", "input_tokens", "input_length", "input_toks",
    "num_prefill_tokens"
)  # fmt: skip
_OUTPUTS: Final = (
    "output", "output_tokens", "output_len", "output_length", "output_toks", "completion_tokens",
    "num_decode_tokens"
)  # fmt: skip
_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "arrival": (*_CLOCKS, *sorted(_TIMED)),
    "prompt": _PROMPTS,
    "output": _OUTPUTS,
    "max_tokens": ("max_tokens",),
    "priority": ("priority",),
    "client": ("client", "client_id"),
    "model": (),  # only where a mapping names it: no column is read for its sake alone
}
_NEEDED: Final = ("prompt", "output")
_LIKE_A_TIME: Final = ("time", "arriv", "stamp", "date", "clock")
_PARTS: Final = {  # of a title, by which a column may well be the role
    "prompt": ("in", "ins", "input", "inputs", "prompt", "prompts", "prefill", "context"),
    "output": (
        "out", "outs", "output", "outputs", "gen", "generated", "generation", "completion", "decode",
        "response", "answer"
    ),
}  # fmt: skip
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_LONGEST_MAPPED: Final = 40  # characters of a title that an error repeats in a flag
_EXAMPLE: Final = "give role=column pairs such as arrival=ts,prompt=in,output=out"


def mapping(text: str) -> dict[str, str]:
    """`arrival=ts,prompt=in,output=out` as role to column.  Raises InputError."""
    found: dict[str, str] = {}
    for pair in text.split(","):
        role, sign, title = (part.strip() for part in pair.partition("="))
        if not (role and sign and title):
            raise InputError(f"columns has {shown(pair)}; {_EXAMPLE}")
        if role in found:
            raise InputError(f"columns gives the {role} twice; {_EXAMPLE}")
        found[role] = title
    return checked(found)


def checked(columns: Mapping[str, str]) -> dict[str, str]:
    """A mapping as a user gave it.  Raises InputError on an unknown or a missing role."""
    for role in columns:
        if role not in _NAMES:
            raise InputError(f"columns names the role {role!r}{nearest(role, _NAMES)}")
    for role in _NEEDED:
        if role not in columns:
            raise InputError(f"columns has no {role}; {_EXAMPLE}")
    titles = list(columns.values())
    for title in titles:
        if titles.count(title) > 1:
            raise InputError(f"columns uses the column {shown(title)} for two roles; name one for each")
    return dict(columns)


def find_titles(table: Table, asked: Mapping[str, str] | None) -> dict[str, str]:
    """The title in the header for each role that the table has.  Raises InputError."""
    return _find_named(table) if asked is None else _find_asked(table, asked)


def _find_asked(table: Table, asked: Mapping[str, str]) -> dict[str, str]:
    for role, title in asked.items():
        if title not in table.header:
            raise table.fail(
                table.header_row,
                f"no column {shown(title)}, which was to be the {role}{nearest(title, listed(table.header))}",
            )
    return dict(asked)


def _find_named(table: Table) -> dict[str, str]:
    titles: dict[str, str] = {}
    for role, names in _NAMES.items():
        found = [title for title in table.header if title.lower() in names]
        if len(found) > 1:
            both = " and ".join(map(repr, found))
            raise table.fail(table.header_row, f"the columns {both} both give the {role}; keep one")
        if found:
            titles[role] = found[0]
    for role in _NEEDED:
        if role not in titles:
            raise _missing(table, role, titles)
    if "arrival" not in titles and (time := _like_a_time(table, titles.values())):
        found_text = f"no arrival column; the columns are {', '.join(listed(table.header))}"
        said = "call it arrival_s (_ms, _us, _ns), or map it"
        flag = _mapping_flag({"arrival": time.strip(), **titles})
        raise table.fail(table.header_row, f"{found_text}; if {shown(time)} is the arrival, {said}: {flag}")
    return titles


def _like_a_time(table: Table, used: Iterable[str]) -> str | None:
    """The first column that nobody reads and that may well be an arrival."""
    taken = set(used)
    for title in table.header:
        word = title.lower()
        is_time = any(part in word for part in _LIKE_A_TIME) or word == "ts" or word.endswith("_ts")
        if title not in taken and (is_time or get_close_matches(word, _CLOCKS, n=1, cutoff=0.7)):
            return title
    return None


def _missing(table: Table, role: str, titles: Mapping[str, str]) -> InputError:
    """The error for a table without `role`; it has the mapping to give, as far as that can be guessed."""
    found = f"no {role} column; the columns are {', '.join(listed(table.header))}"
    guessed = _guessed(table, titles)
    flag = _mapping_flag(guessed)
    title = guessed.get(role)
    if title is None:
        known = ", ".join(_NAMES[role])
        return table.fail(table.header_row, f"{found}; name one {known}, or map it: {flag}")
    close = get_close_matches(title.lower(), _NAMES[role], n=1, cutoff=0.7)
    what = f"is {shown(title)} meant to be {close[0]!r}?" if close else f"is {shown(title)} the {role}?"
    return table.fail(table.header_row, f"{found}; {what} rename it, or map it: {flag}")


def _guessed(table: Table, titles: Mapping[str, str]) -> dict[str, str]:
    """`titles`, and the columns that may well be the roles that lack one: arrival first, then the needed."""
    found = dict(titles)
    if "arrival" not in found and (time := _like_a_time(table, found.values())):
        found = {"arrival": time, **found}
    numbers = [title for title in table.header if table.first.get(title, "").strip().isdecimal()]
    for role in _NEEDED:
        free = [title for title in numbers if title not in found.values()]
        guess = None if role in found else _nearest_title(role, free)
        if guess is not None:
            found[role] = guess
    return found


def _nearest_title(role: str, titles: Iterable[str]) -> str | None:
    """The first title with a word that speaks of `role` alone, else one with nearly a name of it."""
    spoken = {title: _roles_of(title) for title in titles}
    for title, roles in spoken.items():
        if roles == [role]:
            return title
    for title, roles in spoken.items():
        if not roles and get_close_matches(title.lower(), _NAMES[role], n=1, cutoff=0.7):
            return title
    return None


def _roles_of(title: str) -> list[str]:
    """The roles that the words of a title speak of."""
    words = {word.lower() for word in _WORDS.findall(title)}
    return [role for role, parts in _PARTS.items() if not words.isdisjoint(parts)]


def _mapping_flag(titles: Mapping[str, str]) -> str:
    """The flag that says which column is what; NAME where that is not known, or no name for a flag."""
    roles = [role for role in _NAMES if role in titles or role in _NEEDED]
    pairs = [f"{role}={_mappable(titles.get(role, ''))}" for role in roles]
    return f"--columns {quote(','.join(pairs))}"


def _mappable(title: str) -> str:
    can_be = title and title.isprintable() and "," not in title and len(title) <= _LONGEST_MAPPED
    return title if can_be else "NAME"
