"""What the documentation shows is run, and what it lists is complete.

```python     executed; the blocks of a page share one namespace
```text       right after a ```python block: exactly what that block prints
```console    `$ batchwright ...` and `$ python -m batchwright...` are run and their output,
              errors included, is compared; a line `...` stands for any lines.
              `$ cat FILE` shows a file, or makes it; `$ echo $?` is the exit status before
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, fields
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from batchwright import Batch, Limits
from batchwright.cluster import CLUSTERS
from batchwright.hardware import GPUS, MODELS
from batchwright.policies import POLICIES
from batchwright.policies.vllm import FLAGS

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [page for page in (ROOT / "README.md", *sorted(DOCS.rglob("*.md"))) if page.is_file()]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
COLOURS = {"FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TERMINAL_WIDTH"}  # they change what is printed
PYTHON = shlex.quote(sys.executable)
RUNNABLE = {"batchwright": f"{PYTHON} -m batchwright", "python": PYTHON}

PURE_PAGES = (
    "article.md",  # many runs of what other pages run once
    "edge.md",
    "fit.md",  # needs the extra
    "logs.md",  # needs the extra metrics
    "published.md",
    "serve.md",  # needs the extra
)
every_page = pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.pure] * (page.name in PURE_PAGES)) for page in PAGES],
    ids=lambda page: page.name,
)


@dataclass(frozen=True)
class Block:
    """One fenced block.  `follows`: does only white space part it from the block before?"""

    language: str
    body: str
    line: int
    follows: bool


def blocks(text: str) -> list[Block]:
    found, end = [], -1
    for match in FENCE.finditer(text):
        gap = text[end : match.start()] if end >= 0 else "-"
        line = text.count("\n", 0, match.start()) + 2
        found.append(Block(match[1], match[2], line, not gap.strip()))
        end = match.end()
    return found


def commands(session: str) -> Iterator[tuple[str, str]]:
    """Each command of a console block, with the output that is shown for it."""
    for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
        command, _, output = part.replace("\\\n", " ").partition("\n")
        yield command, output


def tidy(text: str) -> list[str]:
    """Lines without trailing spaces, and without blank lines at the end."""
    return [line.rstrip() for line in text.rstrip().splitlines()]


def is_shown(expected: str, printed: str) -> bool:
    """Is `printed` what the page shows?  A line `...` stands for any lines, or none."""
    lines = [r"(?:.*\n)*?" if line == "..." else re.escape(line) + r"\n" for line in tidy(expected)]
    return re.fullmatch("".join(lines), "".join(f"{line}\n" for line in tidy(printed))) is not None


class Shell:
    """Runs the commands of one page in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.status = 0

    def run(self, command: str, shown: str = "") -> str | None:
        """What `command` prints; None if it is not ours to run."""
        words = shlex.split(command)
        if words[0] == "cat":
            return self.cat(self.folder / words[1], shown)
        if command == "echo $?":
            return str(self.status)
        ours = words[0] == "batchwright" or words[:2] == ["python", "-m"]
        return self.call(words) if ours else None

    def cat(self, file: Path, shown: str) -> str:
        if not file.exists():
            file.write_text(shown, encoding="utf-8")
        return file.read_text(encoding="utf-8")

    def call(self, words: list[str]) -> str:
        environment = {key: value for key, value in os.environ.items() if key not in COLOURS}
        done = subprocess.run(
            [*shlex.split(RUNNABLE[words[0]]), *words[1:]],
            cwd=self.folder,
            env={**environment, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=60,
        )
        self.status = done.returncode
        return done.stdout


def printed_by(block: Block, page: Path, namespace: dict[str, Any]) -> str:
    """Execute a Python block; what it prints.  Its line numbers are those of the page."""
    code = compile("\n" * (block.line - 1) + block.body, str(page), "exec", dont_inherit=True)
    out = StringIO()
    with redirect_stdout(out):
        exec(code, namespace)
    return out.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder that shows the examples and test data of the repository."""
    for name in ("examples", "tests"):
        (tmp_path / name).symlink_to(ROOT / name, target_is_directory=True)
    return tmp_path


@every_page
def test_every_page_does_what_it_shows(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    namespace: dict[str, Any] = {"__name__": "page"}
    shell = Shell(folder)
    for block, after in pairwise([*blocks(page.read_text(encoding="utf-8")), Block("", "", 0, False)]):
        if block.language == "python":
            printed = printed_by(block, page, namespace)
            if after.language == "text" and after.follows:
                assert tidy(after.body) == tidy(printed), f"{page.name}:{block.line} prints\n{printed}"
        elif block.language == "console":
            check_session(block, page, shell)


def check_session(block: Block, page: Path, shell: Shell) -> None:
    for command, shown in commands(block.body):
        printed = shell.run(command, shown)
        if printed is not None:
            assert is_shown(shown, printed), f"{page.name}:{block.line}: $ {command}\n{printed}"


@pytest.mark.pure
@pytest.mark.parametrize("page", [page for page in PAGES if page.parent != ROOT], ids=lambda page: page.name)
def test_every_command_in_the_pages_is_one_that_is_run(page: Path) -> None:
    known = ("batchwright ", "python -m batchwright", "cat ", "echo $?")
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language == "console":
            assert all(command.startswith(known) for command, _ in commands(block.body)), block.line


@pytest.mark.pure
def test_other_output_is_noticed() -> None:
    assert is_shown("a\n...\nd\n", "a\nb\nc\nd  \n\n") and is_shown("a\n...\n", "a\n")
    assert not is_shown("a\n", "a\nb\n") and not is_shown("a\n...\nd\n", "a\nb\n")
    assert not is_shown("a.c\n", "abc\n")


@pytest.mark.pure
def test_a_text_block_belongs_only_to_the_block_right_before_it() -> None:
    python, text = "```python\n1\n```\n", "```text\n2\n```\n"
    assert [(b.follows, b.line) for b in blocks(python + "\n" + text)] == [(False, 2), (True, 6)]
    assert [(b.follows, b.line) for b in blocks(python + "so\n" + text)] == [(False, 2), (False, 6)]


# --- what the pages list ----------------------------------------------------------------


def read(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def section(page: str, title: str) -> str:
    """The text under the heading `## title`."""
    parts = re.split(r"^## ", read(page), flags=re.MULTILINE)
    return {part.partition("\n")[0]: part for part in parts}[title]


def first_cells(text: str) -> list[str]:
    """The code that fills the first cell of each row of the tables."""
    return re.findall(r"^\| `([^`]+)` \|", text, flags=re.MULTILINE)


def test_every_flag_of_compare_is_explained(folder: Path) -> None:
    printed = Shell(folder).run("batchwright compare --help")
    assert printed is not None
    flags = set(re.findall(r"--[a-z][a-z-]+", printed))
    assert "--policies" in flags and "--json" in flags
    named = set(re.findall(r"`(--[a-z][a-z-]+)`", section("compare.md", "Flags")))
    assert flags == named


def test_every_row_of_the_table_is_defined(folder: Path) -> None:
    printed = Shell(folder).run("batchwright compare chat --requests 20 --policies vllm --slo ttft=1s")
    assert printed is not None
    table = "\n".join(tidy(printed)).partition("─\n")[2].partition("\n±")[0]
    titles = {re.split(r"\s{2,}", line.strip())[0] for line in table.splitlines() if line.strip()}
    rows = {re.sub(r" (mean|P\d\d)$", "", title) if title[0] in "TEI" else title for title in titles}
    assert "TTFT" in rows and "duration" in rows and "slots: held" in rows
    pages = section("compare.md", "Rows") + section("compare.md", "Where the time went")
    defined = re.findall(r"^\| ([^|]+?) \|", pages, flags=re.MULTILINE)
    assert rows <= set(defined)


def test_every_key_of_the_json_is_documented(folder: Path) -> None:
    flags = "--requests 20 --policies 'replicas(n=2),orca' --slo ttft=1s --window-report 1m --json"
    printed = Shell(folder).run(f"batchwright compare chat {flags}")
    assert printed is not None
    found = json.loads(printed)
    found["policies"] = {"NAME": found["policies"].pop("replicas(n=2)")}
    page = read("json.md").partition("## Other commands")[0]
    assert set(paths(found)) == set(first_cells(page))


NESTED = ("workload", "limits", "policies", "NAME")  # whose keys have lines of their own


def paths(value: dict[str, Any], before: str = "") -> Iterator[str]:
    """Every key as `a.b.c`."""
    for key, inner in value.items():
        path = f"{before}{key}"
        if key in NESTED:
            yield from paths(inner, f"{path}.")
        else:
            yield path


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "continuous"])
def test_every_parameter_of_a_policy_stands_in_its_section_with_its_default(name: str) -> None:
    own = f"schedulers/{name}.md"
    text = read(own) if (DOCS / own).is_file() else section("policies.md", name)
    rows = re.findall(r"^\| `(\w+)` \| `([^`]*)` \|", text, flags=re.MULTILINE)
    assert dict(rows) == {field.name: repr(field.default) for field in fields(POLICIES[name])}


@pytest.mark.parametrize("name", ["distserve", "splitwise"])
def test_every_parameter_of_servers_that_hand_over_stands_with_its_default(name: str) -> None:
    text = section("disaggregation.md", name)
    rows = re.findall(r"^\| `(\w+)` \| `([^`]*)` \|", text, flags=re.MULTILINE)
    assert dict(rows) == {field.name: repr(field.default) for field in fields(CLUSTERS[name])}


def test_every_policy_is_in_the_list() -> None:
    listed = read("policies.md").partition("\nThe four")[0]
    assert set(re.findall(r"`([a-z]\w*)`", listed)) == {*POLICIES, *CLUSTERS}


def test_every_flag_of_vllm_stands_with_the_versions_that_know_it() -> None:
    text = section("policies.md", "vllm")
    rows = dict(re.findall(r"^\| `(\w+)` \| `[^`]*` \| ([^|]+?) \|", text, flags=re.MULTILINE))
    flags = {flag for known in FLAGS.values() for flag in known}
    assert {flag: rows.get(flag) for flag in flags} == {
        flag: ", ".join(version for version in sorted(FLAGS) if flag in FLAGS[version]) for flag in flags
    }


def test_every_public_name_of_batch_is_explained() -> None:
    public = {name for name in dir(Batch(Limits())) if not name.startswith("_")}
    assert {"admit", "chunk", "wake_at"} <= public
    explained = {cell.partition("(")[0] for cell in first_cells(read("custom-policy.md"))}
    assert public <= explained


@pytest.mark.pure
def test_the_example_policy_is_shown_whole_and_is_short() -> None:
    source = (ROOT / "examples" / "custom_policy.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 30
    assert source in [block.body for block in blocks(read("custom-policy.md"))]


def test_every_gpu_and_every_model_is_listed() -> None:
    assert set(first_cells(section("hardware.md", "GPUs"))) == {*GPUS}
    assert set(first_cells(section("hardware.md", "Models"))) == {*MODELS}


@pytest.mark.pure
def test_every_page_is_in_the_menu_and_on_the_map() -> None:
    names = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))) == names
    assert set(re.findall(r"\]\(([\w/-]+\.md)\)", section("index.md", "Pages"))) == names - {"index.md"}


@pytest.mark.pure
def test_the_pages_are_read_without_a_network() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert settings["theme"]["highlightjs"] is False  # it comes from a server
    assert all((DOCS / sheet).is_file() for sheet in settings["extra_css"])
