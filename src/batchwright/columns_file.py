"""Columns on disk: Parquet where polars is installed, else gzipped CSV.

The same columns give the same bytes.  nan is an empty cell in CSV and null in Parquet.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from batchwright.errors import InputError

Columns = Mapping[str, npt.NDArray[Any]]
PARQUET, CSV = ".parquet", ".csv.gz"
LEVEL: Final = 4  # of gzip: 9 takes 15 times as long for a tenth less
PIECE: Final = 50_000  # rows that are text at once
EXTRA: Final = "install the extra that reads it: pip install 'batchwright[data]'"


def write_columns(stem: Path, *tables: Columns | Callable[[], Columns]) -> Path:
    """Write `tables`, one below the other, as `stem`.parquet or `stem`.csv.gz; the path that it got.

    A table may be a function that makes it, so that the next one is made when this one is written.
    """
    if find_spec("polars") is not None:
        file = stem.with_name(stem.name + PARQUET)
        _write_parquet(file, tables)
    else:
        file = stem.with_name(stem.name + CSV)
        _write_csv(file, tables)
    return file


def _made(tables: Iterable[Columns | Callable[[], Columns]]) -> Iterator[Columns]:
    return (table() if callable(table) else table for table in tables)


def read_columns(stem: Path) -> dict[str, npt.NDArray[Any]]:
    """What `write_columns` wrote under `stem`, in either format.  Raises InputError."""
    parquet, text = stem.with_name(stem.name + PARQUET), stem.with_name(stem.name + CSV)
    if parquet.is_file():
        return _read_parquet(parquet)
    if text.is_file():
        return _read_csv(text)
    raise InputError(f"{stem}: there is neither {parquet.name} nor {text.name}; give a whole run folder")


def _write_parquet(file: Path, tables: Iterable[Columns | Callable[[], Columns]]) -> None:
    import polars

    frames = [polars.DataFrame(dict(columns), nan_to_null=True) for columns in _made(tables)]
    packed = io.BytesIO()  # written by us, so that a full disk is an OSError
    polars.concat(frames).write_parquet(packed, compression="zstd")
    file.write_bytes(packed.getbuffer())


def _read_parquet(file: Path) -> dict[str, npt.NDArray[Any]]:
    if find_spec("polars") is None:
        raise InputError(f"{file}: is Parquet, which polars reads; {EXTRA}")
    import polars

    try:
        frame = polars.read_parquet(file)
    except (OSError, polars.exceptions.PolarsError):
        raise InputError(f"{file}: is no whole Parquet file; run the comparison again") from None
    return {name: frame[name].to_numpy() for name in frame.columns}


def _write_csv(file: Path, tables: Iterable[Columns | Callable[[], Columns]]) -> None:
    with file.open("wb") as out, gzip.GzipFile("", "wb", LEVEL, fileobj=out, mtime=0) as packed:
        for number, columns in enumerate(_made(tables)):
            if number == 0:
                packed.write(f"{','.join(columns)}\n".encode())
            for text in _pieces(columns):
                packed.write(text.encode())


def _pieces(columns: Columns) -> Iterator[str]:
    count = len(next(iter(columns.values())))
    for start in range(0, count, PIECE):
        cells = [_cells(values[start : start + PIECE]) for values in columns.values()]
        yield "".join(f"{row}\n" for row in map(",".join, zip(*cells, strict=True)))


def _read_csv(file: Path) -> dict[str, npt.NDArray[Any]]:
    try:
        with gzip.open(file, "rt", encoding="utf-8", newline="") as source:
            names, *rows = csv.reader(source)
        cells = zip(*rows, strict=True) if rows else [()] * len(names)
        columns = dict(zip(names, cells, strict=True))
    except (OSError, EOFError, ValueError, zlib.error, csv.Error):
        raise InputError(f"{file}: is no whole gzipped CSV; run the comparison again") from None
    return {name: _numbers(cells) for name, cells in columns.items()}


def _cells(values: npt.NDArray[Any]) -> list[str]:
    """The text of each value: of a float, the shortest that gives the same one back."""
    kind = values.dtype.kind
    if kind == "f":
        return ["" if value != value else repr(value) for value in values.tolist()]
    if kind in "iu":
        return list(map(str, values.tolist()))
    different, at = np.unique(values, return_inverse=True)
    quoted = [_quoted(value) for value in different.tolist()]
    return [quoted[place] for place in at.tolist()]


def _quoted(value: str) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow([value, ""])
    return text.getvalue()[:-1]


def _numbers(cells: Sequence[str]) -> npt.NDArray[Any]:
    """Whole numbers, else numbers with nan for what is missing, else text."""
    for kind in (np.int64, np.float64):
        try:
            return np.array([cell or "nan" for cell in cells]).astype(kind)
        except ValueError:
            continue
    return np.array(cells)
