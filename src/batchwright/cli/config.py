"""`batchwright config`: make, check and describe scenario files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from batchwright.errors import InputError
from batchwright.files import write_whole
from batchwright.scenario.build import prepare
from batchwright.scenario.keys import Scenario
from batchwright.scenario.text import read
from batchwright.scenario.text import schema as schema_of


def init(file: Path, force: bool) -> None:
    """Write a scenario with every key, explained.  Raises InputError if `file` is there."""
    write_whole(file, "\n".join(_lines()) + "\n", force)
    print(f"{file}: a scenario; run it with batchwright compare {file}")


def validate(file: Path, as_json: bool = False) -> None:
    """Read the scenario and its load and make its server and policies.  Raises BatchwrightError."""
    if not file.is_file():
        raise InputError(f"{file}: there is no such file; batchwright config init {file} makes one")
    prepared = prepare(read(str(file)))
    if not as_json:
        print(f"{file}: valid; {', '.join(prepared.policies)} on {prepared.load.describe()}")
        return
    found = {"file": str(file), "policies": list(prepared.policies), "notes": prepared.notes}
    scenario = msgspec.to_builtins(prepared.resolved())
    print(json.dumps({**found, "num_requests": len(prepared.load), "scenario": scenario}, indent=2))


def schema() -> None:
    """Print the JSON schema of scenarios."""
    print(json.dumps(schema_of(), indent=2))


def _lines() -> Iterator[str]:
    yield "# A Batchwright scenario: batchwright compare FILE.  Each key is the flag of the same name."
    yield "# What is commented out shows the default; null is chosen for you, and printed."
    panel = ""
    hints = get_type_hints(Scenario, include_extras=True)
    for field in msgspec.structs.fields(Scenario):
        meta = next(item for item in get_args(hints[field.name]) if isinstance(item, msgspec.Meta))
        group = (meta.extra or {})["panel"]
        if group != panel:
            yield from ("", f"# --- {group}")
            panel = group
        yield f"# {meta.description}"
        yield _line(field)


def _line(field: msgspec.structs.FieldInfo) -> str:
    given: dict[str, Any] = {"workload": "chat", "policies": ["static", "dynamic", "continuous"]}
    if field.name in given:
        return f"{field.name}: {json.dumps(given[field.name])}"
    default = [] if field.default is msgspec.NODEFAULT else field.default
    return f"# {field.name}: {json.dumps(default)}"
