"""The bytes of a trace file, and its text, whatever way it is packed.

Gzip is told by its first bytes, not by the name.  Text is UTF-8; a byte-order mark is fine.
"""

from __future__ import annotations

import gzip
import zlib
from typing import Final

from batchwright.errors import InputError

_START: Final = 1 << 16  # bytes
_GZIP: Final = b"\x1f\x8b"
PARQUET: Final = b"PAR1"
_TAR: Final = (257, b"ustar")  # where its mark stands
_REFUSED: Final = {b"PK\x03\x04": "zip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2"}
_POINTER: Final = b"version https://git-lfs."


def read_bytes(path: str, instead: str = "check its name") -> bytes:
    """All of it, unpacked if it is gzip.  Raises InputError on a file that cannot be read whole.

    `instead`: what to do if there is no such file.
    """
    raw = _read_file(path, instead)
    if raw.startswith(_GZIP):
        raw = _unpack(path, raw)
    for magic, kind in _REFUSED.items():
        if raw.startswith(magic):
            raise InputError(f"{path}: is a {kind} file; unpack it, or pack it with gzip")
    if raw.startswith(_POINTER):
        raise InputError(f"{path}: is a Git LFS pointer, not the data; fetch it with git lfs pull")
    if not raw.strip():
        raise InputError(f"{path}: is empty; give a trace with a header and at least one row")
    return raw


def is_archive(raw: bytes) -> bool:
    """Is it a tar?"""
    place, mark = _TAR
    return raw[place : place + len(mark)] == mark


def text_of(path: str, raw: bytes) -> str:
    """Raises InputError on what is no text."""
    text = _decode(path, raw)
    if not text.strip():
        raise InputError(f"{path}: is empty; give a trace with a header and at least one row")
    return text


def _read_file(path: str, instead: str) -> bytes:
    try:
        with open(path, "rb") as file:
            start = file.read(_START)
            if b"\0" in start and not (start.startswith((_GZIP, PARQUET)) or is_archive(start)):
                return start  # neither text nor a kind that is read, so the rest is not worth its memory
            return start + file.read()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; {instead}") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{path!r}: cannot be read ({reason}); check its name and permissions") from None


def _unpack(path: str, raw: bytes) -> bytes:
    try:
        return gzip.decompress(raw)
    except EOFError:
        reason = "cut short"
    except (OSError, zlib.error) as error:
        reason = f"damaged ({error})"
    raise InputError(f"{path}: the gzip data is {reason}; fetch or write the file again")


def _decode(path: str, raw: bytes) -> str:
    nul = raw.find(0)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = error.start if nul < 0 else min(nul, error.start)
        raise _not_text(path, raw, place) from None
    if nul >= 0:
        raise _not_text(path, raw, nul)
    return text


def _not_text(path: str, raw: bytes, place: int) -> InputError:
    row = raw.count(b"\n", 0, place) + 1
    return InputError(f"{path}: row {row}: byte 0x{raw[place]:02x} is no UTF-8 text; save the trace as UTF-8")
