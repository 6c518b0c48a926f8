"""ServeGen client models: for each client, how it sends in each window, and its lengths.

    chunk-7-trace.csv       start of the window (s), requests/s, CV of the gaps, Gamma or Weibull,
                            and two parameters of a fit; a row for each window
    chunk-7-dataset.json    {"0": {"input_tokens": "{45: 0.0097, 46: 0.0117}", ...}, "21600": ...}

The lengths are histograms, tokens to probability, one for each name and span of time.  Client 7
is chunk 7.  The files lie in a folder or in a tar, plain or gzipped.

Source: alibaba/ServeGen, README; Xiang et al., ServeGen, NSDI 2026 (arXiv 2505.09999).
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

import numpy as np

from batchwright.errors import InputError
from batchwright.workload.cells import shown
from batchwright.workload.columns import Floats, Ints
from batchwright.workload.source import is_archive, read_bytes

_NAME: Final = re.compile(r"chunk-([0-9]{1,9})-(trace\.csv|dataset\.json)")
_MOST_SEEN: Final = 100_000  # files of a folder, of which few are client models
_LAWS: Final = ("Gamma", "Weibull")
_HISTOGRAM: Final = re.compile(r"\{[0-9eE.+\-:, ]*\}")


class Window(NamedTuple):
    """`start`: seconds.  `rate`: requests/s.  `cv`: of the gaps, whose law is `law`."""

    start: float
    rate: float
    cv: float
    law: str


class Histogram(NamedTuple):
    """`cumulative[i]`: probability of at most `tokens[i]`; the last one is 1."""

    tokens: Ints
    cumulative: Floats

    def draw(self, random: np.random.Generator, count: int) -> Ints:
        """Tokens of `count` independent draws."""
        places = np.searchsorted(self.cumulative, random.random(count), side="right")
        return self.tokens[places]


@dataclass(frozen=True, eq=False, kw_only=True)
class ClientModel:
    """One client.  `texts`: start of a span of time to its histograms, by name, as text."""

    number: int
    where: str
    windows: tuple[Window, ...]
    texts: Mapping[float, Mapping[str, str]]

    def lengths(self, start: float) -> dict[str, Histogram]:
        """The histograms at `start` seconds, by name; those that are empty left out."""
        spans = [span for span in self.texts if span <= start]
        texts = self.texts[max(spans)] if spans else {}
        found = {name: self._histogram(name, text) for name, text in texts.items() if "ratio" not in name}
        return {name: histogram for name, histogram in found.items() if len(histogram.tokens)}

    def _histogram(self, name: str, text: str) -> Histogram:
        where = f"{self.where}: {name}"
        if not isinstance(text, str) or not _HISTOGRAM.fullmatch(text):
            raise InputError(
                f"{where} is {shown(str(text))}, no histogram like {{45: 0.5, 46: 0.5}}; fetch it again"
            )
        try:
            cells = np.array(re.split("[:,]", text[1:-1]) if text[1:-1].strip() else [], np.float64)
        except ValueError:
            raise InputError(f"{where} has a cell that is no number; fetch the file again") from None
        tokens, chances = cells[::2], cells[1::2]
        good = len(tokens) == len(chances) and (tokens == np.floor(tokens)).all() and (cells >= 0).all()
        if not good or (len(cells) and chances.sum() <= 0):
            raise InputError(
                f"{where} is no histogram of whole tokens to probabilities; fetch the file again"
            )
        cumulative = np.cumsum(chances)
        return Histogram(tokens.astype(np.int64), cumulative / cumulative[-1:])


def read_clients(path: str) -> list[ClientModel]:
    """All clients, by number.  Raises InputError, with the file, on what is not whole."""
    files = dict(_files(path))
    if not files:
        raise InputError(
            f"{path}: is a directory without client models (chunk-N-trace.csv); give one trace file in it"
            if os.path.isdir(path)
            else f"{path}: is a tar without client models (chunk-N-trace.csv); unpack it and give one file"
        )
    clients = [_client(path, number, parts) for number, parts in sorted(_by_client(path, files).items())]
    starts = {tuple(window.start for window in client.windows) for client in clients}
    if len(starts) > 1:
        raise InputError(f"{path}: its clients have different windows; give the folder of one model")
    return clients


def _files(path: str) -> Iterator[tuple[str, bytes]]:
    """Name with folder, and content, of every file of a client model."""
    if os.path.isdir(path):
        for file in sorted(_inside(path)):
            yield file.as_posix(), read_bytes(str(file))
        return
    raw = read_bytes(path)
    if not is_archive(raw):
        raise InputError(f"{path}: is no folder or tar of ServeGen client models; give one")
    try:
        with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as archive:
            yield from _members(archive)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise InputError(f"{path}: the tar is damaged or cut short ({error}); fetch it again") from None


def _members(archive: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
    for member in archive:
        content = archive.extractfile(member) if member.isfile() else None
        if content is not None and _NAME.fullmatch(PurePosixPath(member.name).name):
            yield member.name, content.read()


def _inside(path: str) -> Iterator[Path]:
    """The files of client models in a folder and the folders in it."""
    num_seen = 0
    for folder, _, names in os.walk(path, onerror=_unreadable):
        num_seen += len(names) + 1
        if num_seen > _MOST_SEEN:
            raise InputError(f"{path}: holds over {_MOST_SEEN} files; give a trace, or a model's folder")
        yield from (Path(folder, name) for name in names if _NAME.fullmatch(name))


def _unreadable(error: OSError) -> None:
    raise InputError(f"{error.filename}: cannot be read ({error.strerror}); check its permissions")


def _by_client(path: str, files: Mapping[str, bytes]) -> dict[int, dict[str, tuple[str, bytes]]]:
    """For each client, its two files by kind."""
    folders = {str(PurePosixPath(name).parent) for name in files}
    if len(folders) > 1:
        some = ", ".join(sorted(folders)[:3])
        raise InputError(f"{path}: holds the clients of several models ({some}); give the folder of one")
    clients: dict[int, dict[str, tuple[str, bytes]]] = {}
    for name, raw in files.items():
        match = _NAME.fullmatch(PurePosixPath(name).name)
        assert match is not None
        clients.setdefault(int(match[1]), {})[match[2]] = (PurePosixPath(name).name, raw)
    return clients


def _client(path: str, number: int, parts: Mapping[str, tuple[str, bytes]]) -> ClientModel:
    for kind in ("trace.csv", "dataset.json"):
        if kind not in parts:
            raise InputError(f"{path}: has no chunk-{number}-{kind}; fetch or write the files again")
    name, raw = parts["trace.csv"]
    windows = tuple(_windows(f"{path}: {name}", raw))
    name, raw = parts["dataset.json"]
    where = f"{path}: {name}"
    return ClientModel(number=number, where=where, windows=windows, texts=_texts(where, raw))


def _windows(where: str, raw: bytes) -> Iterator[Window]:
    lines = csv.reader(io.StringIO(raw.decode("utf-8", "replace"), newline=""))
    row = 0
    for row, cells in enumerate(lines, 1):
        try:
            start, rate, cv = map(float, cells[:3])
            law = cells[3]
        except (ValueError, IndexError):
            wanted = "start, requests/s, CV, law"
            raise InputError(f"{where}: row {row}: is not {wanted}; fetch the file again") from None
        if not (start >= 0 and rate >= 0 and cv >= 0 and isfinite(start + rate + cv)):
            raise InputError(f"{where}: row {row}: has a number that is no time, rate or CV; correct it")
        if rate and law not in _LAWS:
            raise InputError(f"{where}: row {row}: the law is {shown(law)}; known: Gamma, Weibull")
        yield Window(start, rate, cv, law)
    if not row:
        raise InputError(f"{where}: is empty; fetch the file again")


def _texts(where: str, raw: bytes) -> dict[float, Mapping[str, str]]:
    try:
        found = json.loads(raw)
        return {float(start): dict(texts) for start, texts in found.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        reason = "is no JSON of spans with histograms; it may be cut short"
        raise InputError(f"{where}: {reason}; fetch it again") from None
