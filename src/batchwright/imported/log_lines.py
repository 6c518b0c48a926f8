"""Lines of a server's log, without what stood before the message.

    2026-11-30T21:16:36.120Z (APIServer pid=9) INFO 11-30 21:16:36 [loggers.py:199] Engine 000: ...

In front may be, in this order, the time that Docker or Kubernetes wrote, the name of a container,
the process of vLLM that spoke, and its own level, time and place.  Colours are taken out.  Docker's
`json-file` lines are read, too.  A log tells whole seconds and no year, Docker and Kubernetes fractions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final, NamedTuple

from batchwright.errors import InputError

LONGEST: Final = 1 << 16  # characters of a line; start-up lines have some 6,000
DAY: Final = 86_400.0
_YEAR: Final = 366 * DAY
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_STAMP: Final = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?\d*(Z|[+-]\d\d:?\d\d)?\s")
_ENGINE: Final = re.compile(r"\(EngineCore(?:_(?:DP)?(\d+))?[ )]")
_OWN: Final = re.compile(
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d)-(\d\d) (\d\d):(\d\d):(\d\d) \[?[\w.]+:\d+\] "
)


class Line(NamedTuple):
    """`seconds`: when, from some instant of the same log; None: not told.  `is_fine`: with fractions.

    `core`: the number of the engine core that spoke; None: another process, or not told.
    """

    text: str
    seconds: float | None
    is_fine: bool
    core: int | None


def lines(name: str, text: str) -> Iterator[Line]:
    """The lines of a log.  Raises InputError on one that is too long to be of a log."""
    clock = _Clock()
    for number, raw in enumerate(text.splitlines(), 1):
        if len(raw) > LONGEST:
            raise InputError(
                f"{name}: line {number} has {len(raw)} characters, over {LONGEST}; give the text of a log"
            )
        yield clock.line(_COLOUR.sub("", _unpacked(raw)))


def _unpacked(raw: str) -> str:
    """The message of a line of Docker's `json-file`, its time before it; else the line."""
    if not raw.startswith('{"log":'):
        return raw
    try:
        found = json.loads(raw)
    except ValueError:
        return raw
    return f"{found.get('time', '')} {str(found['log']).rstrip()}"


class _Clock:
    """Turns times into seconds that do not run back by a year at New Year."""

    def __init__(self) -> None:
        self.last = 0.0

    def line(self, raw: str) -> Line:
        stamp, own = _STAMP.search(raw, 0, 64), _OWN.search(raw)
        core = _ENGINE.search(raw, 0, own.start() if own else 200)
        text = raw[own.end() :] if own else raw[stamp.end() :] if stamp else raw
        seconds = self._seconds(stamp, own)
        of = None if core is None else int(core[1] or 0)
        return Line(text, seconds, stamp is not None and stamp[3] is not None, of)

    def _seconds(self, stamp: re.Match[str] | None, own: re.Match[str] | None) -> float | None:
        if stamp is not None:
            return _instant(stamp)
        if own is None:
            return None
        found = _in_year(*map(int, own.groups()))
        if found is not None:
            while found < self.last - _YEAR / 2:
                found += _YEAR
            self.last = found
        return found


def _instant(stamp: re.Match[str]) -> float | None:
    """Seconds of a full date; None if there is no such day."""
    zone = (stamp[4] or "Z").replace("Z", "+00:00")
    try:
        whole = datetime.fromisoformat(f"{stamp[1]}T{stamp[2]}{zone}").timestamp()
    except ValueError:
        return None
    return whole + float(f"0.{stamp[3] or 0}")


def _in_year(month: int, day: int, hour: int, minute: int, second: int) -> float | None:
    """Seconds from the start of a leap year; None if there is no such day."""
    try:
        passed = datetime(2024, month, day, hour, minute, second) - datetime(2024, 1, 1)
    except ValueError:
        return None
    return passed.total_seconds()
