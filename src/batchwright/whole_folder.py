"""Folders that are written whole or not at all.

A folder is made beside its place and renamed when it is whole, so that one that is there is whole.
One that is there is replaced only if it holds a file that marks it as of the same kind.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from batchwright.errors import InputError
from batchwright.files import check_free


@dataclass(frozen=True, kw_only=True)
class Kind:
    """`name` as messages call such a folder; `mark`: the file that each of them holds."""

    name: str
    mark: str


def check_place(folder: Path, force: bool, kind: Kind) -> None:
    """Raises InputError if `folder` is there, unless `force`; then only if it is of another kind."""
    if not folder.exists():
        _check_parent(folder)
        return
    check_free(folder, force)
    if not (folder / kind.mark).is_file():
        raise InputError(f"{folder}: is no {kind.name}, so it is not replaced; give another name")


def _check_parent(folder: Path) -> None:
    """Told before a long run, not after it."""
    there = next(parent for parent in folder.absolute().parents if parent.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"{folder}: cannot be written in {there}; give another place")


@contextmanager
def whole(folder: Path, force: bool, kind: Kind) -> Iterator[Path]:
    """A new folder that takes the name `folder` if nothing goes wrong, and is gone otherwise.

    Raises InputError as `check_place`, or if there is no room for it.
    """
    check_place(folder, force, kind)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.partial.", dir=folder.parent))
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror}); give another place") from None
    try:
        yield part
        part.chmod(0o755)
        _replace(part, folder)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror}); give another place") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _replace(part: Path, folder: Path) -> None:
    if not folder.exists():
        os.rename(part, folder)
        return
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.old.", dir=folder.parent) as old:
        os.rename(folder, Path(old) / "was")
        os.rename(part, folder)
