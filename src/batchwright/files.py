"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from batchwright.errors import InputError


def user_cache() -> Path:
    """$XDG_CACHE_HOME/batchwright, or that of ~/.cache."""
    system = os.environ.get("XDG_CACHE_HOME")
    return (Path(system) if system else Path.home() / ".cache") / "batchwright"


def check_free(place: Path, force: bool) -> None:
    """Raises InputError if `place` is taken, unless `force`."""
    if not force and place.exists():
        raise InputError(f"{place}: is there already; give another name, or --force to replace it")


def write_whole(file: Path, content: str | bytes, force: bool = False) -> None:
    """Write beside `file`, then rename; an interrupted run leaves what was there before.

    Raises InputError if `file` is there, unless `force`, or cannot be written.
    """
    check_free(file, force)
    if file.exists() and not file.is_file():
        raise InputError(f"{file}: is no file, and cannot be written; give another name")
    data = content.encode() if isinstance(content, str) else content
    try:
        handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    except OSError as error:
        raise InputError(f"{file}: cannot be written ({error.strerror}); give another place") from None
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
        part.chmod(0o644)
        part.replace(file)
    except OSError as error:
        raise InputError(f"{file}: cannot be written ({error.strerror}); give another place") from None
    finally:
        part.unlink(missing_ok=True)
