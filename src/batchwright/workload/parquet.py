"""Parquet as a table, read by polars (the extra `data`).  Rows are counted from 1."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from batchwright.errors import InputError
from batchwright.workload.table import PIECE, Piece, Table

if TYPE_CHECKING:
    from polars import DataFrame


def parquet_table(name: str, raw: bytes, wanted: Collection[str] | None = None) -> Table:
    """`wanted`: the only columns to read, if not all.

    Raises InputError on a file that is cut short, has no row, or cannot be read for lack of polars.
    """
    frame = _frame(name, raw)
    if not frame.height:
        raise InputError(f"{name}: is a Parquet file without a row; give at least one request")
    header = [title for title in frame.columns if wanted is None or title in wanted]
    return Table(
        name=name,
        header=header,
        header_row=None,
        first=dict(zip(header, _as_text(frame.select(header).head(1)).row(0), strict=True)),
        pieces=lambda titles: _pieces(frame.select(titles)),
    )


def _frame(name: str, raw: bytes) -> DataFrame:
    try:
        import polars
    except ImportError:
        raise InputError(
            f"{name}: is a Parquet file, which needs polars; pip install 'batchwright[data]', "
            "or give CSV or JSONL"
        ) from None
    try:
        return polars.read_parquet(io.BytesIO(raw))
    except (polars.exceptions.PolarsError, OSError) as error:
        reason = " ".join(str(error).split())[:100]
        raise InputError(f"{name}: is a Parquet file that is damaged or cut short ({reason})") from None


def _as_text(frame: DataFrame) -> DataFrame:
    """Every cell as text; a column of lists or bytes says in each cell what it is."""
    import polars

    columns = []
    for title, kind in frame.schema.items():
        is_flat = not kind.is_nested() and kind not in (polars.Binary, polars.Object)
        column = polars.col(title).cast(polars.String).fill_null("") if is_flat else polars.lit(str(kind))
        columns.append(column.alias(title))
    return frame.select(columns)


def _pieces(frame: DataFrame) -> Iterator[Piece]:
    for start in range(0, frame.height, PIECE):
        part = _as_text(frame.slice(start, PIECE))
        yield Piece(range(start + 1, start + part.height + 1), [column.to_list() for column in part])
