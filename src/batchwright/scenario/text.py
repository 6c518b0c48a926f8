"""Scenarios from YAML, flags and `--set`, and back to YAML and JSON schema."""

from __future__ import annotations

import os
import re
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
    return _scenario(keys, source if is_file else "")


def moved(scenario: Scenario, folder: Path) -> Scenario:
    """The same scenario with the paths of its files as seen from `folder`."""

    def seen(path: str) -> str:
        return os.path.relpath(path, folder) if os.path.isfile(path) else path

    model = None if scenario.model is None else seen(scenario.model)
    files = [seen(file) for file in scenario.policy_file]
    return msgspec.structs.replace(
        scenario, workload=seen(scenario.workload), model=model, policy_file=files
    )


def as_yaml(scenario: Scenario) -> str:
    """The keys that are not at their defaults."""
    import yaml

    text: str = yaml.safe_dump(msgspec.to_builtins(scenario), sort_keys=False, allow_unicode=True)
    return text


def schema() -> dict[str, Any]:
    """JSON schema of a scenario."""
    found = msgspec.json.schema(Scenario)
    bare: dict[str, Any] = found["$defs"]["Scenario"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Batchwright scenario"} | bare


def _mapping(file: Path) -> dict[str, Any]:
    """The keys of a YAML file; a path in it starts at the file's folder."""
    import yaml

    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{file}: there is no such file; batchwright config init {file} makes one") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read ({error}); give a YAML file") from None
    except yaml.YAMLError as error:
        raise InputError(f"{file}: is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise InputError(f"{file}: is no mapping of keys; start with workload: chat")
    if "workload" not in found:
        raise InputError(f"{file}: lacks the key workload; add a trace file or a load such as chat")
    return _beside(found, file.parent)


def _beside(keys: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Paths that are there, as seen from the folder of the file."""

    def found(path: object) -> object:
        is_path = isinstance(path, str) and (folder / path).is_file()
        return os.path.normpath(folder / str(path)) if is_path else path

    files = keys.get("policy_file")
    moved: dict[str, Any] = {key: found(keys[key]) for key in ("workload", "model") if key in keys}
    if isinstance(files, list):
        moved["policy_file"] = [found(file) for file in files]
    return keys | moved


def _assignment(item: str) -> tuple[str, Any]:
    import yaml

    key, equals, text = item.partition("=")
    key = key.strip().replace("-", "_")
    if not equals or not key:
        raise InputError(f"--set {item!r} is not of the form key=value")
    try:
        return key, yaml.safe_load(text)
    except yaml.YAMLError:
        raise InputError(f"--set {item!r}: the value is no YAML; quote it") from None


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
    what, key = (match[1], match[2]) if match else (message, None)
    if not key:
        return what
    name = re.split(r"[\[.]", key)[0]
    expected = what.replace("Expected", "expected").replace("`", "")
    return f"{name} is {keys.get(name)!r}: {expected}; correct it (batchwright config schema lists all keys)"
