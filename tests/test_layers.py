"""Which module may import which: an arrow that the design does not draw is an error."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.pure

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "batchwright"

# part -> the parts that it may import, itself apart.  A part is a module or a package.
BASE = {"errors"}
WORK = BASE | {"limits", "step", "request", "config", "ranked"}
LEAF = BASE | {"request", "step"}
STATE = WORK | {
    "arrivals", "blocks", "waiting", "log", "prediction", "tally", "speculation", "drafts", "link",
    "host_memory", "movers", "refusals", "extremes",
}  # fmt: skip
LAYERS: dict[str, set[str]] = {
    "errors": set(),
    "version": set(),
    "files": BASE,
    "yaml_text": BASE,
    "whole_folder": BASE | {"files"},
    "config": BASE,
    "expressions": set(),
    "limits": BASE | {"config", "request", "ranked"},
    "step": BASE,
    "request": BASE,
    "ranked": {"request"},
    "arrivals": WORK,
    "blocks": WORK,
    "waiting": WORK,
    "log": WORK,
    "speculation": WORK,
    "drafts": WORK | {"blocks", "speculation"},
    "prediction": WORK,
    "tally": WORK,
    "link": WORK,
    "host_memory": WORK | {"link"},
    "movers": WORK,
    "refusals": WORK,
    "extremes": WORK,
    "batch": STATE,
    "swapping": STATE | {"batch"},
    "handover": STATE | {"batch", "swapping"},
    "contract": STATE | {"batch"},
    "policies": STATE | {"batch", "swapping", "handover", "contract", "expressions"},
    "hardware": LEAF,
    "workload": LEAF | {"expressions", "plain_table"},
    "metrics": LEAF,
    "durations": BASE,
    "columns_file": BASE,
    "plain_table": set(),
    "figures": BASE | {"interval"},
    "interval": BASE | {"metrics"},
    "slo": BASE | {"metrics", "durations"},
    "theory": LEAF,
    "cost": LEAF | {"hardware"},
    "host_link": LEAF | {"cost", "link"},
    "layer_profile": LEAF | {"hardware", "cost", "metrics"},
    "operators": LEAF | {"hardware", "cost", "files"},
    "cost_text": LEAF | {"hardware", "cost", "expressions", "layer_profile", "operators"},
    "checkpoint": LEAF,
    "settled": LEAF | {"limits", "cost", "workload", "hardware"},
    "history": BASE | {"request", "log"},
    "drafted": LEAF | {"cost", "drafts", "speculation"},
    "driver": STATE | {"batch", "swapping", "contract", "cost", "drafted", "host_link"},
    "simulator": STATE | {"batch", "contract", "cost", "driver"},
    "engines": STATE | {"batch", "contract", "cost", "driver", "metrics", "policies"},
}
CORE = {
    "errors", "config", "limits", "step", "request", "ranked", "arrivals", "blocks", "waiting", "log",
    "prediction", "tally", "link", "host_memory", "movers", "refusals", "extremes", "batch", "swapping",
    "handover",
    "contract", "policies", "cost", "driver", "simulator", "speculation", "drafts", "drafted", "host_link",
    "cluster",
}  # fmt: skip
# Above the simulator, lowest first: each rank may import all before it, and its own.
RANKS: list[set[str]] = [
    {"server_command", "imported"},
    {"cluster", "run", "conformance"},
    {"drawing", "export"},
    {"planner", "explain", "replications", "client_report", "kv_report"},
    {"report", "report_json"},
    {"comparison"},
    {"article", "published", "measured"},
    {"edge"},
    {"theory_report"},
    {"profile"},
    {"scenario"},
    {"run_summary"},
    {"run_folder"},
    {"folder_difference", "validation"},
    {"calibration"},
    {"accuracy"},
    {"cli", "server"},
    {"__init__", "__main__"},
]

Arrow = tuple[str, str]  # from the module that imports, to what it imports


def allowed() -> dict[str, set[str]]:
    """`LAYERS` with the ranks written out."""
    table, below = dict(LAYERS), set(LAYERS)
    for rank in RANKS:
        below = below | rank
        table |= dict.fromkeys(rank, below)
    return table


def modules(package: Path) -> Iterator[tuple[str, ast.Module]]:
    """Path inside the package and syntax tree of every module."""
    for file in sorted(package.rglob("*.py")):
        yield file.relative_to(package).as_posix(), ast.parse(file.read_text(encoding="utf-8"))


def imports(tree: ast.Module) -> Iterator[str]:
    """Dotted names of all imports, those inside functions and `if TYPE_CHECKING` too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield "." * node.level + (node.module or "")
        elif isinstance(node, ast.ImportFrom) and node.module == "batchwright":
            yield from (f"batchwright.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def part(path: str) -> str:
    """The part that a file belongs to: policies/vllm.py -> policies, batch.py -> batch."""
    return path.split("/")[0].removesuffix(".py")


def target(name: str, package: Path) -> str:
    """The part that `batchwright.x.y` names; a name that is no module is the package's own."""
    first = name.split(".")[1] if "." in name else ""
    is_part = (package / f"{first}.py").is_file() or (package / first / "__init__.py").is_file()
    return first if first and is_part else "__init__"


def wrong_arrows(package: Path) -> list[Arrow]:
    table = allowed()
    return [
        (path, name)
        for path, tree in modules(package)
        for name in imports(tree)
        if name.split(".")[0] == "batchwright"
        if target(name, package) not in table.get(part(path), set()) | {part(path)}
    ]


def foreign_imports(package: Path) -> list[Arrow]:
    """What the core imports from outside the standard library and Batchwright."""
    return [
        (path, name)
        for path, tree in modules(package)
        if part(path) in CORE
        for name in imports(tree)
        if name.split(".")[0] not in sys.stdlib_module_names | {"batchwright"}
    ]


def unplaced(package: Path) -> set[str]:
    return {part(path) for path, _ in modules(package)} - set(allowed())


def test_every_part_has_a_place_in_the_layers() -> None:
    assert unplaced(PACKAGE) == set(), "give the part a line in LAYERS, or a rank in RANKS"


def test_no_module_imports_from_a_layer_above_it() -> None:
    assert wrong_arrows(PACKAGE) == []


def test_the_core_imports_only_the_standard_library() -> None:
    assert foreign_imports(PACKAGE) == []


def test_imports_are_absolute() -> None:
    relative = [(path, name) for path, tree in modules(PACKAGE) for name in imports(tree) if name[:1] == "."]
    assert relative == []


def test_the_layers_have_no_cycle() -> None:
    placed: set[str] = set()
    while ready := {name for name in LAYERS.keys() - placed if LAYERS[name] <= placed}:
        placed |= ready
    assert placed == LAYERS.keys()


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("batch.py", "from batchwright.simulator import Simulator"),
        ("batch.py", "from batchwright import simulator"),
        ("batch.py", "from batchwright import Simulator"),
        ("batch.py", "import batchwright"),
        ("policies/vllm.py", "def late() -> None:\n    import batchwright.simulator"),
        ("engines.py", "if TYPE_CHECKING:\n    import batchwright.simulator"),
        ("report.py", "from batchwright.cli import main"),
        ("stray.py", "from batchwright.errors import InputError"),
    ],
)
def test_an_arrow_that_points_up_is_found(tmp_path: Path, path: str, source: str) -> None:
    plant(tmp_path, path, source)
    assert [where for where, _ in wrong_arrows(tmp_path)] == [path]


@pytest.mark.parametrize("source", ["import numpy as np", "from mypy_extensions import mypyc_attr"])
def test_a_foreign_import_in_the_core_is_found(tmp_path: Path, source: str) -> None:
    plant(tmp_path, "policies/mine.py", source)
    assert [where for where, _ in foreign_imports(tmp_path)] == ["policies/mine.py"]


def plant(package: Path, path: str, source: str) -> None:
    """A package of empty modules, and one with `source`."""
    for name in ("__init__", "errors", "simulator", "cli"):
        (package / f"{name}.py").touch()
    (package / path).parent.mkdir(exist_ok=True)
    (package / path).write_text(source, encoding="utf-8")
