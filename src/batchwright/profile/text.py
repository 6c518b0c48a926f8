"""Profiles as YAML.

A digest of all that a profile says stands at its end, so that an edit is told: the numbers of a
changed cost are not those that were tested.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any, Final

import msgspec

from batchwright.errors import BatchwrightError, InputError, nearest
from batchwright.profile.profile import LIMITS, Profile
from batchwright.yaml_text import parse_file, written

SCHEMA_VERSION: Final = 1
_KEYS: Final = ("schema_version", "name", "cost", "limits", "provenance", "range", "error", "kept", "digest")
_AGAIN: Final = "let batchwright fit write it again"
_FIRST: Final = "# A calibrated cost model of batchwright: compare LOAD --profile THIS_FILE\n"


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of a file."""

    schema_version: int
    name: str
    cost: str
    limits: dict[str, int] = {}
    provenance: dict[str, Any] = {}
    range: dict[str, tuple[float, float]] = {}
    error: dict[str, dict[str, float]] = {}
    kept: list[str] = []
    digest: str = ""


def as_text(profile: Profile) -> str:
    """The file."""
    said = _said(profile)
    return _FIRST + written(said | {"digest": _digest(said)})


def read(path: Path) -> Profile:
    """The profile in a file.  Raises InputError on one that is no profile, old, or says what cannot be."""
    found = _mapping(path)
    version = found.get("schema_version")
    if version != SCHEMA_VERSION:
        raise InputError(
            f"{path}: is a profile of schema_version {version!r}, but {SCHEMA_VERSION} is read; {_AGAIN}"
        )
    try:
        file = msgspec.convert(found, _File)
    except msgspec.ValidationError as error:
        said = str(error).replace("`", "").replace("$.", "")
        raise InputError(f"{path}: is no whole profile: {said}; {_AGAIN}") from None
    profile = _profile(file)
    _check(path, profile)
    return profile


def _mapping(path: Path) -> dict[str, Any]:
    """The keys of a file that are those of a profile."""
    found = parse_file(path, f"batchwright fit -o {path}", "a file that fit -o wrote")
    if not isinstance(found, dict) or "schema_version" not in found or "cost" not in found:
        raise InputError(f"{path}: is no profile; give a file that batchwright fit -o wrote")
    for key in found:
        if key not in _KEYS:
            raise InputError(f"{path}: unknown key {key!r}{nearest(str(key), _KEYS)}")
    return found


def _profile(file: _File) -> Profile:
    profile = Profile(
        name=file.name,
        cost=file.cost,
        limits=file.limits,
        provenance=file.provenance,
        range=file.range,
        error=file.error,
        kept=tuple(file.kept),
    )
    return replace(profile, is_edited=file.digest != _digest(_said(profile)))


def _check(path: Path, profile: Profile) -> None:
    """Raises InputError on values that no fit writes."""
    for name, value in profile.limits.items():
        if name not in LIMITS:
            raise InputError(f"{path}: limits has the unknown key {name!r}{nearest(name, LIMITS)}")
        if value < 1:
            raise InputError(f"{path}: {name} of limits is {value}, but must be at least 1; {_AGAIN}")
    for name, (least, greatest) in profile.range.items():
        if not (isfinite(least) and isfinite(greatest) and least <= greatest):
            raise InputError(f"{path}: range of {name} is from {least} to {greatest}; {_AGAIN}")
    try:
        profile.model()
    except BatchwrightError as error:
        raise InputError(f"{path}: {error}") from None


def _said(profile: Profile) -> dict[str, Any]:
    """What the digest is of."""
    return {
        "schema_version": SCHEMA_VERSION,
        "name": profile.name,
        "cost": profile.cost,
        "limits": dict(profile.limits),
        "provenance": dict(profile.provenance),
        "range": {name: list(ends) for name, ends in profile.range.items()},
        "error": {kind: dict(errors) for kind, errors in profile.error.items()},
        "kept": list(profile.kept),
    }


def _digest(said: Mapping[str, Any]) -> str:
    return sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]
