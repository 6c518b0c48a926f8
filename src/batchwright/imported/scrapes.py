"""Prometheus text as scrapes: one, or several one after the other in a file, or a folder with one a file.

When a scrape was taken is told by the times of its samples, by a line of its own before it (`date +%s`,
`date -Is`), or by a number of ten digits in the file's name; else nobody knows.  The text is read by
prometheus-client.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from batchwright.errors import InputError
from batchwright.imported.engine_metrics import NAMES
from batchwright.imported.source import Source

EXTRA: Final = "install prometheus-client, which reads it: pip install 'batchwright[metrics]'"
PREFIXES: Final = ("vllm:", "sglang:")
_ENDINGS: Final = (".txt", ".prom", ".metrics", ".log", "")
_START: Final = 1 << 16  # characters in which a metric of an engine stands
_SIGN: Final = re.compile(r"^(?:# (?:HELP|TYPE) )?(?:vllm|sglang):\w+[ {]", re.MULTILINE)
_ABOUT: Final = re.compile(r"# (HELP|TYPE) (\S+)")
_KEY: Final = re.compile(r"([A-Za-z_:][\w:]*)(?:\{.*\})?(?=\s+[-+.\dNI])")
_ENDING: Final = re.compile(r"_(?:bucket|sum|count)$")
_TIME: Final = re.compile(
    r"(?:#\s*)?(?:time:?\s*)?(\d{10}(?:\.\d+)?|\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?)\s*"
)
_PARTS: Final = re.compile(r"(\d+)")
_IN_NAME: Final = re.compile(r"(?<!\d)(\d{10})(?:\d{3})?(?!\d)")


@dataclass(frozen=True)
class Sample:
    """One line: `labels` without `le`, which is `limit`, the upper limit of a bucket."""

    labels: Mapping[str, str]
    value: float
    limit: str | None


@dataclass
class Scrape:
    """Samples by the name of their line, as `vllm:num_preemptions_total`.  `seconds`: since 1970, or None."""

    seconds: float | None = None
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def of(self, name: str) -> list[Sample]:
        return self.samples.get(name, [])


def matches(source: Source) -> bool:
    """Is it, or is in the folder, text with metrics of vLLM or SGLang?"""
    if not source.is_folder:
        return _SIGN.search(source.text) is not None
    return any(_has_metrics(file) for file in _files(source.path))


def scrapes(source: Source) -> list[Scrape]:
    """In order of their times, or as they stand if one tells none.

    Raises InputError on a line that is no metric, or if the reader is not installed.
    """
    found = _as_they_stand(source)
    times = [one.seconds for one in found if one.seconds is not None]
    if len(times) < len(found):
        return found
    order = sorted(range(len(found)), key=times.__getitem__)  # stable: of the same time as they stand
    return [found[place] for place in order]


def _as_they_stand(source: Source) -> list[Scrape]:
    if not source.is_folder:
        return list(_of_text(source.name, source.text, None))
    found: list[Scrape] = []
    for file in filter(_has_metrics, _files(source.path)):
        told = _IN_NAME.search(file.name)
        text = Source.open(file, None).text
        found += _of_text(str(file), text, float(told[1]) if told else None)
    return found


def _files(folder: Path) -> list[Path]:
    """In order of their names, numbers in them by value: m2 before m10."""
    found = [file for file in folder.iterdir() if file.suffix in _ENDINGS and file.is_file()]
    return sorted(found, key=lambda file: [_part(each) for each in _PARTS.split(file.name)])


def _part(text: str) -> tuple[int, str]:
    return (int(text), text) if text.isdecimal() and text.isascii() else (-1, text)


def _has_metrics(file: Path) -> bool:
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            return _SIGN.search(opened.read(_START)) is not None
    except OSError:
        return False


def _of_text(name: str, text: str, told: float | None) -> Iterator[Scrape]:
    for first_row, lines, seconds in _split(text):
        yield _scrape(name, first_row, lines, told if seconds is None else seconds)


def _split(text: str) -> Iterator[tuple[int, list[str], float | None]]:
    """The lines of each scrape, the row of its first one, and its time if a line tells it."""
    kept: list[str] = []
    seen: set[str] = set()
    told: float | None = None
    start = 1
    for row, line in enumerate(text.splitlines(), 1):
        time = _time(line)
        key = "time" if time is not None else _key(line)
        if key is not None and (key in seen or (time is not None and seen)):
            yield start, kept, told
            kept, seen, told, start = [], set(), None, row
        if time is not None:
            told = time
            kept.append("")
            continue
        if key is not None:
            seen.add(key)
        kept.append(line)
    if seen:
        yield start, kept, told


def _key(line: str) -> str | None:
    """What comes once in a scrape: a sample's name and labels, or what a comment is about."""
    about = _ABOUT.match(line)
    if about is not None:
        return f"{about[1]} {about[2]}"
    sample = _KEY.match(line)
    return None if sample is None else sample[0]


def _time(line: str) -> float | None:
    match = _TIME.fullmatch(line)
    if match is None:
        return None
    try:
        return float(match[1])
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(match[1].replace(",", ".").replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def _scrape(name: str, first_row: int, lines: list[str], told: float | None) -> Scrape:
    found = Scrape(told)
    for family in _families(name, first_row, [line if _is_needed(line) else "" for line in lines]):
        for sample in family.samples:
            if not sample.name.startswith(PREFIXES):
                continue
            labels = dict(sample.labels)
            limit = labels.pop("le", None)
            found.samples.setdefault(sample.name, []).append(Sample(labels, float(sample.value), limit))
            if found.seconds is None and sample.timestamp is not None:
                found.seconds = float(sample.timestamp)
    return found


def _is_needed(line: str) -> bool:
    """Is it a sample of an engine, or no line of this text at all, which its reader refuses?"""
    match = _KEY.match(line)
    if match is None:
        return not line.startswith("#")
    return line.startswith(PREFIXES) and _ENDING.sub("", match[1]) in NAMES


def _families(name: str, first_row: int, lines: list[str]) -> list[Any]:
    try:
        from prometheus_client.parser import text_string_to_metric_families as families
    except ImportError:
        raise InputError(f"{name}: is Prometheus text; {EXTRA}") from None
    try:
        return list(families("\n".join(lines) + "\n"))
    except (ValueError, KeyError, IndexError):
        pass
    for row, line in enumerate(lines, first_row):
        try:
            list(families(line + "\n"))
        except (ValueError, KeyError, IndexError):
            raise InputError(
                f"{name}: row {row}: {line[:60]!r} is no line of Prometheus text; give the answers "
                "of /metrics as they are, with nothing between but their times, as date +%s prints them"
            ) from None
    raise InputError(f"{name}: row {first_row}: a scrape that cannot be read starts here; scrape it again")
