"""Scenarios from YAML, flags and `--set`, and back to YAML and JSON schema."""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from batchwright.errors import InputError, nearest
from batchwright.scenario.keys import Scenario

ENDINGS: Final = (".yaml", ".yml")
KEYS: Final = tuple(field.name for field in msgspec.structs.fields(Scenario))
_PLACE: Final = re.compile(r"^(.*?)(?: - at `\$\.?(.*)`)?$", re.DOTALL)


def read(source: str, flags: Mapping[str, Any] | None = None, sets: Iterable[str] = ()) -> Scenario:
    """The scenario of a YAML file, or of a workload; flags, then `sets` (`key=value`), override it.

    Flags that are None are not given.  Raises InputError.
    """
    is_file = source.endswith(ENDINGS)
    keys = _mapping(Path(source)) if is_file else {"workload": source}
    keys |= {key: value for key, value in (flags or {}).items() if value is not None}
    for item in sets:
        key, value = _assignment(item)
        keys[key] = value
    if keys.get("like") is not None:
        from batchwright.scenario.like import with_like

        keys = with_like(keys)
    return _scenario(keys, source if is_file else "")


def moved(scenario: Scenario, folder: Path) -> Scenario:
    """The same scenario with the paths of its files as seen from `folder`."""

    def seen(path: str) -> str:
        return os.path.relpath(path, folder) if os.path.isfile(path) else path

    model, profile = (None if path is None else seen(path) for path in (scenario.model, scenario.profile))
    files = [seen(file) for file in scenario.policy_file]
    return msgspec.structs.replace(
        scenario, workload=seen(scenario.workload), model=model, profile=profile, policy_file=files
    )


def as_yaml(scenario: Scenario) -> str:
    """The keys that are not at their defaults."""
    from batchwright.yaml_text import written

    return written(msgspec.to_builtins(scenario))


def schema() -> dict[str, Any]:
    """JSON schema of a scenario."""
    found = msgspec.json.schema(Scenario)
    bare: dict[str, Any] = found["$defs"]["Scenario"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Batchwright scenario"} | bare


def _mapping(file: Path) -> dict[str, Any]:
    """The keys of a YAML file; a path in it starts at the file's folder."""
    from batchwright.yaml_text import parse_file

    found = parse_file(file, f"batchwright config init {file}", "a YAML file")
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise InputError(f"{file}: is no mapping of keys; start with workload: chat")
    if "workload" not in found:
        raise InputError(f"{file}: lacks the key workload; add a trace file or a load such as chat")
    return _beside(found, file.parent)


def _beside(keys: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Paths that are there, as seen from the folder of the file."""

    def found(path: object) -> object:
        is_path = isinstance(path, str) and os.path.isfile(folder / path)
        return os.path.normpath(folder / str(path)) if is_path else path

    files = keys.get("policy_file")
    moved: dict[str, Any] = {key: found(keys[key]) for key in ("workload", "model", "profile") if key in keys}
    if isinstance(files, list):
        moved["policy_file"] = [found(file) for file in files]
    return keys | moved


def _assignment(item: str) -> tuple[str, Any]:
    from batchwright.yaml_text import parse

    key, equals, text = item.partition("=")
    key = key.strip().replace("-", "_")
    if not equals or not key:
        raise InputError(f"--set {item!r} is not of the form key=value")
    return key, parse(text, f"--set {key}")


def _scenario(keys: dict[str, Any], source: str) -> Scenario:
    start = f"{source}: " if source else ""
    for key in keys:
        if key not in KEYS:
            raise InputError(f"{start}unknown key {key!r}{nearest(key, KEYS)}")
    try:
        return msgspec.convert(keys, Scenario)
    except msgspec.ValidationError as error:
        raise InputError(start + _reason(str(error), keys)) from None


def _reason(message: str, keys: Mapping[str, Any]) -> str:
    """What msgspec says, with the value."""
    match = _PLACE.match(message)
    what, place = (match[1], match[2]) if match else (message, None)
    within = re.search(r" - at `key` in `\$\.(\w+)`$", message)
    if within:
        what, place = f"{message[: within.start()]}, among its keys", within[1]
    if not place:
        return what
    name = re.split(r"[\[.]", place)[0]
    expected = what.replace("Expected", "expected").replace("`", "")
    value = _short(keys.get(name))
    return f"{name} is {value}: {expected}; correct it (batchwright config schema lists all keys)"


def _short(value: object) -> str:
    """As Python writes it, but bounded, however it is nested."""
    text = repr(value) if isinstance(value, str) else reprlib.repr(value)
    return text if len(text) <= 100 else f"{text[:80]}..."
