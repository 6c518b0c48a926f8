"""The text of a trace file, whatever way it is packed.

Gzip is told by its first bytes, not by the name.  Text is UTF-8; a byte-order mark is fine.
"""

from __future__ import annotations

import gzip
import zlib
from typing import Final

from batchwright.errors import InputError

_START: Final = 1 << 16  # bytes
_GZIP: Final = b"\x1f\x8b"
_PACKED: Final = {b"PAR1": "Parquet", b"PK\x03\x04": "zip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2"}


def read_text(path: str, built_in: tuple[str, ...]) -> str:
    """All of it.  Raises InputError on a file that cannot be read whole as text.

    `built_in`: names that are no files, for whoever gave a path that is none either.
    """
    raw = _read_bytes(path, built_in)
    if raw.startswith(_GZIP):
        raw = _unpack(path, raw)
    for magic, kind in _PACKED.items():
        if raw.startswith(magic):
            raise InputError(f"{path}: is a {kind} file, not text; give CSV or JSONL, plain or gzipped")
    text = _decode(path, raw)
    if not text.strip():
        raise InputError(f"{path}: is empty; give a trace with a header and at least one row")
    return text


def _read_bytes(path: str, built_in: tuple[str, ...]) -> bytes:
    try:
        with open(path, "rb") as file:
            start = file.read(_START)
            if b"\0" in start and not start.startswith(_GZIP):
                return start  # no text, so the rest is not worth its memory
            return start + file.read()
    except FileNotFoundError:
        known = ", ".join(built_in)
        raise InputError(f"{path}: no such file; give a trace file, or a built-in load: {known}") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a directory; give one trace file in it") from None
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
