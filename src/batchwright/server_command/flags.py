"""The flags of a command, read as the server's own parser reads them.

    --flag value   --flag=value   --flag_name value   -tp 2   --no-flag   --flag a b c   -cc.mode=none

What follows a flag is told by a table per engine; of a flag that is in none, everything up to the next
flag is its value.  A start of a name that fits one flag alone stands for it, as in argparse.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

import yaml

NO: Final = "no-"


@dataclass(frozen=True)
class Table:
    """Names of flags without dashes in front, by what follows them.

    `aliases`: other name to name.  `not_modelled`: flag to why it is not.
    """

    switches: frozenset[str]
    values: frozenset[str]
    lists: frozenset[str]
    aliases: dict[str, str]
    not_modelled: dict[str, str]

    @property
    def names(self) -> frozenset[str]:
        return self.switches | self.values | self.lists

    def name(self, written: str) -> str:
        """The flag's own name, whichever way it is written; unchanged if it is not known."""
        own = written if written in self.aliases else written.replace("_", "-")
        own = self.aliases.get(own, own)
        if own in self.names:
            return own
        if own.startswith(NO) and own.removeprefix(NO) in self.switches:
            return own
        long = [name for name in (*self.names, *self.aliases) if name.startswith(own)] if len(own) > 3 else []
        return self.aliases.get(long[0], long[0]) if len(long) == 1 else own


@dataclass(frozen=True)
class Given:
    """`written`: as in the command.  `name`: the flag's own.  `value`: None of a switch."""

    written: str
    name: str
    value: str | None

    @property
    def is_on(self) -> bool:
        """Of a switch: is it not `--no-...`, nor given false?"""
        return not self.name.startswith(NO) and (self.value or "true").lower() not in ("false", "0")

    @property
    def key(self) -> str:
        """The name without `no-`."""
        return self.name.removeprefix(NO)


@cache
def table_of(engine: str) -> Table:
    """The flags of an engine."""
    text = files("batchwright.server_command").joinpath(f"{engine}.yaml").read_text(encoding="utf-8")
    found = yaml.safe_load(text)
    switches, values, lists = (frozenset(found[kind]) for kind in ("switches", "values", "lists"))
    why = {flag: reason for reason, flags in found["not_modelled"].items() for flag in flags}
    return Table(switches, values, lists, found["aliases"], why)


def parse(arguments: list[str], table: Table) -> tuple[list[str], list[Given]]:
    """Words that belong to no flag, and the flags, in order."""
    loose: list[str] = []
    found: list[Given] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not is_flag(word):
            loose.append(word)
            continue
        written, equals, value = word.partition("=")
        name, dot, _ = written.lstrip("-").partition(".")
        own = table.name(name)
        if not dot and own not in table.names and len(written) > 2 and not written.startswith("--"):
            own, value, equals = _joined(written, table) or (own, value, equals)
        if equals or dot:
            given = value if equals else rest.pop(0) if rest else ""
            found.append(Given(written, own, given))
            continue
        found.append(Given(written, own, _value(own, rest, table)))
    return loose, found


def is_flag(word: str) -> bool:
    """Does it start with a dash, and is no negative number?"""
    return len(word) > 1 and word[0] == "-" and not (word[1].isdigit() or word[1] == ".")


def _joined(written: str, table: Table) -> tuple[str, str, str] | None:
    """`-O3` is -O 3, `-tp2` is -tp 2."""
    for end in range(len(written) - 1, 1, -1):
        name = table.aliases.get(written[1:end])
        if name is not None and name in table.values:
            return name, written[end:], "="
    return None


def _value(name: str, rest: list[str], table: Table) -> str | None:
    """What follows a flag; taken out of `rest`."""
    if name in table.switches or name.startswith(NO):
        is_word = bool(rest) and rest[0].lower() in ("true", "false")
        return rest.pop(0) if is_word else None
    if name in table.values:
        return rest.pop(0) if rest and not is_flag(rest[0]) else None
    values = []
    while rest and not is_flag(rest[0]):
        values.append(rest.pop(0))
    return " ".join(values) or None
