"""Files of measurements as their authors published them."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from batchwright.errors import InputError

DAMAGED: Final = (OSError, EOFError, zlib.error, csv.Error, KeyError, TypeError, ValueError)


@contextmanager
def as_published(file: Path) -> Iterator[None]:
    """Raises InputError in place of what a missing or damaged file makes Python raise."""
    try:
        yield
    except DAMAGED:
        raise InputError(f"{file}: cannot be read; give the file as it was published") from None


def csv_rows(file: Path) -> list[dict[str, str]]:
    """The rows of a CSV, gzipped or not.  Raises InputError on one that is damaged, or has none."""
    opened = gzip.open if file.suffix == ".gz" else open
    with as_published(file), opened(file, "rt", encoding="utf-8", newline="") as source:
        rows = list(csv.DictReader(source))
    if not rows:
        raise InputError(f"{file}: has no row; give the file as it was published")
    return rows
