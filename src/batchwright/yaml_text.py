"""YAML as scenarios and profiles use it: the numbers of YAML 1.2, no key twice, of bounded size and depth.

YAML 1.1, which the library reads, takes `010` for 8, `1:30` for 90 and `1e3` for a text, and lets the
last of two equal keys win.  Here the first two are texts, the third is a number, and the last is an error.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import yaml
from yaml.constructor import ConstructorError

from batchwright.errors import InputError

GREATEST: Final = 1 << 20  # characters
_LONGEST_NUMBER: Final = 300  # digits, before a point
_OLD: Final = {f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "timestamp")}
_INT: Final = re.compile(rf"[-+]?(?:0|[1-9][0-9]{{0,{_LONGEST_NUMBER - 1}}})")
_FLOAT: Final = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_STARTS: Final = list("-+.0123456789")


class _Loader(yaml.SafeLoader):
    """The library's, but for numbers and keys that come twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Raises ConstructorError if a key comes twice."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise ConstructorError(
                    None, None, f"the key {key.value!r} is there twice; leave one out", key.start_mark
                )
            seen.add(str(key.value) if isinstance(key, yaml.ScalarNode) else "")
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


class _Dumper(yaml.SafeDumper):
    """Quotes what `_Loader` would not read as text."""


_Loader.yaml_implicit_resolvers = {
    start: [one for one in found if one[0] not in _OLD]
    for start, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}

for _kind in (_Loader, _Dumper):
    _kind.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(rf"(?:{_INT.pattern})$"), _STARTS)
    _kind.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(rf"(?:{_FLOAT.pattern})$"), _STARTS)


def parse_file(path: Path, maker: str, wanted: str) -> Any:
    """What a file says, as `parse`.  `maker`: the command that makes one; `wanted`: what to give instead.

    Raises InputError.
    """
    try:
        with path.open(encoding="utf-8") as opened:
            text = opened.read(GREATEST + 1)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; {maker} makes one") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error}); give {wanted}") from None
    return parse(text, str(path))


def parse(text: str, what: str) -> Any:
    """The value of a YAML text.  `what` names it in errors.  Raises InputError."""
    if len(text) > GREATEST:
        raise InputError(f"{what}: is over {GREATEST} characters; a scenario or profile has a few lines")
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"{what}: is not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise InputError(f"{what}: is nested too deeply; a scenario or profile has a few levels") from None


def written(value: Any) -> str:
    """The YAML that `parse` reads as `value`, keys in their order."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text
