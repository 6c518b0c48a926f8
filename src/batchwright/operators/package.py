"""The packages that carry operator measurements, where one of them is installed.

    aisimulate            module aisimulate_core
    aiconfigurator-core   module aiconfigurator_core

Both have the same interface, of which this module uses `EngineHandle.compile`, its evaluation of
single operators, and its times of whole steps.  Nothing of theirs is copied into this package.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from batchwright.errors import InputError

MODULES: Final = (  # the first that has tables is taken
    ("aisimulate_core", ("aisimulate", "aisim", "aisimulate-core")),
    ("aiconfigurator_core", ("aiconfigurator-core",)),
)
ENGINES: Final = ("vllm", "sglang", "trtllm")
NONE: Final = (
    "measured step times need a package that carries them, and none is installed; "
    "pip install 'batchwright[measured]' (Linux x86-64, Python 3.11 to 3.13)"
)


@dataclass(frozen=True, kw_only=True)
class Package:
    """An installed package with tables.  `module`: what is imported; `folder`: where it is."""

    name: str
    version: str
    module: str
    folder: Path

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    @cached_property
    def systems(self) -> dict[str, list[str]]:
        """GPUs that have tables, and the engines that were measured on each, without loading any."""
        found: dict[str, set[str]] = {}
        data = self.folder / "systems" / "data"
        for pattern in ("*/*/*/*", "*/*/*"):  # GPU, family of operators, engine, version; or no family
            for place in data.glob(pattern):
                if place.is_dir() and place.parent.name in ENGINES:
                    gpu = place.relative_to(data).parts[0]
                    found.setdefault(gpu, set()).add(place.parent.name)
        return {name: sorted(engines) for name, engines in sorted(found.items())}

    @cached_property
    def models(self) -> list[str]:
        """Names of the models that it knows by itself, as on Hugging Face."""
        files = (self.folder / "model_configs").glob("*_config.json")
        names = {file.name.removesuffix("_config.json") for file in files}
        return sorted(name.replace("--", "/", 1) for name in names if not name.endswith("_hf_quant"))

    def versions(self, gpu: str, engine: str) -> list[str]:
        """Versions of the engine that can be asked for on that GPU, the usual one first."""
        with quiet(self.module):
            slots = self.load("perf_database").get_version_slots(gpu, engine) or {}
        return list(dict.fromkeys(slots[name] for name in ("current", "previous", "next") if name in slots))

    def load(self, module: str) -> Any:
        """A module of its SDK.  Raises InputError if it cannot be loaded."""
        try:
            return import_module(f"{self.module}.sdk.{module}")
        except (ImportError, AttributeError) as error:
            raise InputError(
                f"{self} cannot be loaded ({error}); install it again, or another version"
            ) from None


def installed(modules: Iterable[tuple[str, tuple[str, ...]]] = MODULES) -> Package:
    """The package with measurements that is installed.  Raises InputError if there is none.

    `modules`: what is looked for, and the names that it may be installed by.
    """
    for module, names in modules:
        spec = find_spec(module)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            if (Path(place) / "systems" / "data").is_dir():
                name, number = _distribution(names)
                return Package(name=name, version=number, module=module, folder=Path(place))
    raise InputError(NONE)


def _distribution(names: tuple[str, ...]) -> tuple[str, str]:
    for name in names:
        try:
            return name, version(name)
        except PackageNotFoundError:
            continue
    return names[0], "of unknown version"


@contextmanager
def quiet(module: str) -> Iterator[None]:
    """Without the package's own warnings, which tell of tables that are not asked for."""
    logger = logging.getLogger(module)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
