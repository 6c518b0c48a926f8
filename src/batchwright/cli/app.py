"""The commands; what they do is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer
from typer import Argument, Option

from batchwright.cli.options import scenario_command
from batchwright.errors import InputError
from batchwright.scenario.keys import Scenario

app = typer.Typer(
    help="Predict, explain and run the batching policy of an LLM inference server.",
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
INTERRUPTED: Final = 130


def run(arguments: list[str]) -> int:
    """Run one command; its exit status.  Raises BatchwrightError on bad input."""
    try:
        status = app(arguments or ["--help"], prog_name="batchwright", standalone_mode=False)
    except typer.TyperException as error:
        raise InputError(f"{error.format_message().rstrip('.')}; see batchwright --help") from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    if status == INTERRUPTED:  # what typer makes of Ctrl-C
        raise KeyboardInterrupt
    return status if isinstance(status, int) else 0


@app.callback()
def _root() -> None:
    """Predict, explain and run the batching policy of an LLM inference server."""


@app.command()
def version() -> None:
    """Print the version, and whether the core runs compiled or interpreted."""
    from batchwright import batch
    from batchwright.version import __version__

    mode = "interpreted (pure Python)" if (batch.__file__ or "").endswith(".py") else "compiled (mypyc)"
    print(f"batchwright {__version__}, core {mode}")


@app.command()
@scenario_command
def compare(
    scenario: Scenario,
    *,
    json: Annotated[bool, Option("--json", help="print JSON (docs/json.md) instead of a table")] = False,
) -> None:
    """Compare batching policies on one workload."""
    from batchwright.cli.compare import compare

    compare(scenario, as_json=json)


@app.command()
@scenario_command
def theory(
    scenario: Scenario,
    *,
    json: Annotated[bool, Option("--json", help="print JSON (docs/theory.md) instead of text")] = False,
) -> None:
    """Show the closed forms for one workload and server, beside simulation."""
    from batchwright.cli.theory import theory

    theory(scenario, as_json=json)


config = typer.Typer(help="Make, check and describe scenario files.", rich_markup_mode=None)
app.add_typer(config, name="config")
_FILE = Annotated[Path, Argument(help="scenario (.yaml)")]


@config.command("init")
def config_init(
    file: _FILE, *, force: Annotated[bool, Option("--force", help="replace a file that is there")] = False
) -> None:
    """Write a scenario with every key, explained."""
    from batchwright.cli.config import init

    init(file, force)


@config.command("validate")
def config_validate(file: _FILE) -> None:
    """Check a scenario, its load, server and policies without running it."""
    from batchwright.cli.config import validate

    validate(file)


@config.command("schema")
def config_schema() -> None:
    """Print the JSON schema of scenarios."""
    from batchwright.cli.config import schema

    schema()
