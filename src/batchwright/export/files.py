"""Files that are written whole or not at all: beside the target first, then moved onto it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

from batchwright.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Exported:
    """The text of a file, and `notes`: what it cannot say, to be printed."""

    text: str
    notes: tuple[str, ...] = ()


def write_whole(path: str | os.PathLike[str], text: str, force: bool = False) -> None:
    """Write `text` as UTF-8.  An existing file is replaced only with `force`.

    Raises InputError if there is one, or if it cannot be written; then nothing has changed.
    """
    target = Path(path)
    if not force and os.path.lexists(target):
        raise InputError(f"{target}: exists already; give another name, or --force to replace it")
    with (
        _named(target),
        NamedTemporaryFile(
            "w", encoding="utf-8", newline="\n", dir=target.parent, prefix=f".{target.name}.", delete=False
        ) as file,
    ):
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o666 & ~_umask())
            os.replace(file.name, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(file.name)
            raise


@contextmanager
def _named(target: Path) -> Iterator[None]:
    """An error of the operating system as one line."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{target}: cannot be written ({error.strerror}); check its folder") from None


def _umask() -> int:
    """The process's own, which can be read only by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
