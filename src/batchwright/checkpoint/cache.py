"""The cache of models: a folder for each, whose parts are whole or not there.

A part is made in a folder beside the model's, then its files are moved in, one of them last: a part is
there when that file is.  So a run that was interrupted is taken up again at the part it was at.  One run
at a time works on a model, and clears away what dead ones have left.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from batchwright.checkpoint.needs import need
from batchwright.errors import InputError

Report = Callable[[str, float], None]  # what is being done, and how far it is, 0 to 1


@contextmanager
def locked(folder: Path, report: Report) -> Iterator[None]:
    """Alone with the model in `folder`; waits for another run to end.  Raises InputError."""
    need("filelock")
    from filelock import FileLock, Timeout

    lock = FileLock(folder.with_name(f".{folder.name}.lock"))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            report("waits for another run", 0.0)
            lock.acquire()
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror}); give another --cache") from None
    try:
        for left in folder.parent.glob(f".{folder.name}.partial.*"):
            shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        if not any(folder.iterdir()):
            folder.rmdir()
        lock.release()


@contextmanager
def part(folder: Path, last: str) -> Iterator[Path]:
    """A new folder, whose files replace those of `folder` if nothing goes wrong, `last` as the last.

    Raises InputError if there is no room for it.
    """
    made = Path(tempfile.mkdtemp(prefix=f".{folder.name}.partial.", dir=folder.parent))
    try:
        yield made
        (folder / last).unlink(missing_ok=True)  # as long as the old files are replaced one by one
        for file in sorted(made.iterdir(), key=lambda file: file.name == last):
            file.replace(folder / file.name)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror}); give another --cache") from None
    finally:
        shutil.rmtree(made, ignore_errors=True)
