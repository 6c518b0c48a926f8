"""Columns on disk: Parquet where polars is installed, else gzipped CSV.

The same columns give the same bytes.  nan is an empty cell in CSV and null in Parquet.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from batchwright.errors import InputError

Columns = Mapping[str, npt.NDArray[Any]]
PARQUET, CSV = ".parquet", ".csv.gz"
EXTRA: Final = "install the extra that reads it: pip install 'batchwright[data]'"


def write_columns(stem: Path, columns: Columns) -> Path:
    """Write `stem`.parquet or `stem`.csv.gz; the path that it got."""
    if find_spec("polars") is not None:
        file = stem.with_name(stem.name + PARQUET)
        _write_parquet(file, columns)
    else:
        file = stem.with_name(stem.name + CSV)
        _write_csv(file, columns)
    return file


def read_columns(stem: Path) -> dict[str, npt.NDArray[Any]]:
    """What `write_columns` wrote under `stem`, in either format.  Raises InputError."""
    parquet, text = stem.with_name(stem.name + PARQUET), stem.with_name(stem.name + CSV)
    if parquet.is_file():
        return _read_parquet(parquet)
    if text.is_file():
        return _read_csv(text)
    raise InputError(f"{stem}: there is neither {parquet.name} nor {text.name}; give a whole run folder")


def _write_parquet(file: Path, columns: Columns) -> None:
    import polars

    packed = io.BytesIO()  # written by us, so that a full disk is an OSError
    polars.DataFrame(dict(columns), nan_to_null=True).write_parquet(packed, compression="zstd")
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


def _write_csv(file: Path, columns: Columns) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(_cells(values) for values in columns.values()), strict=True))
    with file.open("wb") as out, gzip.GzipFile("", "wb", fileobj=out, mtime=0) as packed:
        packed.write(text.getvalue().encode())


def _read_csv(file: Path) -> dict[str, npt.NDArray[Any]]:
    try:
        with gzip.open(file, "rt", encoding="utf-8", newline="") as source:
            names, *rows = csv.reader(source)
        columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    except (OSError, EOFError, ValueError, zlib.error, csv.Error):
        raise InputError(f"{file}: is no whole gzipped CSV; run the comparison again") from None
    return {name: _numbers(cells) for name, cells in columns.items()}


def _cells(values: npt.NDArray[Any]) -> list[Any]:
    if values.dtype.kind != "f":
        return values.tolist()  # type: ignore[no-any-return]
    return ["" if np.isnan(value) else value for value in values.tolist()]


def _numbers(cells: Sequence[str]) -> npt.NDArray[Any]:
    """Whole numbers, else numbers with nan for what is missing, else text."""
    for kind in (np.int64, np.float64):
        try:
            return np.array([cell or "nan" for cell in cells]).astype(kind)
        except ValueError:
            continue
    return np.array(cells)
