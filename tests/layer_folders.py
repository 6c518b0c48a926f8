"""Small layer profiles: the one under tests/data, and changed copies of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(__file__).parent / "data" / "layer_profile"


def copied(to: Path, **changes: Callable[[str], str | None]) -> Path:
    """A copy of the profile in `to`; `changes`: by stem of a file, a new text, or None to remove it."""
    shutil.copytree(FOLDER, to, dirs_exist_ok=True)
    for stem, change in changes.items():
        path = next(to.glob(f"{stem}.*"))
        text = change(path.read_text())
        if text is None:
            path.unlink()
        else:
            path.write_text(text)
    return to
