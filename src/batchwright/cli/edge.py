"""`batchwright edge`: where batching goes wrong, with numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer import Option

from batchwright.scenario.keys import SERVER

if TYPE_CHECKING:
    from batchwright.edge.answer import Answer
    from batchwright.edge.serve import Report

edge: Final = typer.Typer(help="Where batching goes wrong: what happens, why, and what to do.", rich_markup_mode=None)
Gpu = Annotated[str, Option(help="GPU of the server", rich_help_panel=SERVER)]
Model = Annotated[str, Option(help="name, or path of a config.json", rich_help_panel=SERVER)]
Tp = Annotated[
    int, Option("--tp", "--tensor-parallel-size", help="GPUs that share the model", rich_help_panel=SERVER)
]
Requests = Annotated[int, Option(help="of one load")]
Seed = Annotated[int, Option(help="of the first load")]
Repeat = Annotated[int, Option(help="so many loads, with other seeds")]
Json = Annotated[bool, Option("--json", help="print JSON (docs/edge.md) instead of text")]
H100: Final = "H100-SXM"
LLAMA: Final = "llama-3.1-8b"


@edge.command("short-flood")
def short_flood(
    *,
    gpu: Gpu = H100,
    model: Model = LLAMA,
    tp: Tp = 1,
    requests: Requests = 2000,
    seed: Seed = 0,
    repeat: Repeat = 3,
    json: Json = False,
) -> None:
    """A flood of very short requests: what the scheduler costs beside the step."""
    from batchwright.edge import short_flood as case

    _print(case, case.short_flood, _server(gpu, model, tp), requests, seed, repeat, json)


def _server(gpu: str, model: str, tp: int) -> Any:
    from batchwright.edge.server import Server

    return Server(gpu, model, tp)


def _print(case: Any, make: Any, server: Any, requests: int, seed: int, repeat: int, as_object: bool) -> None:
    """Make a study, and print it as text or JSON.  Raises BatchwrightError."""
    from json import dumps

    from batchwright.cli.progress import progress
    from batchwright.edge.answer import as_json

    with progress(1) as report:
        said: Report | None = None if report is None else lambda share: report("edge", share)
        study = make(server, requests=requests, seed=seed, repeat=repeat, report=said)
    if as_object:
        print(dumps(as_json(study, case.UNITS), indent=2))
        return
    found: Answer = case.answer(study)
    print(found.text())
