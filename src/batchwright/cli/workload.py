"""`batchwright workload`: look at a load before anything runs."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from typer import Argument, Option

workload: Final = typer.Typer(help="Look at workloads.", rich_markup_mode=None)


@workload.command("describe")
def describe(
    file: Annotated[str, Argument(help="trace file, folder of client models, or load such as chat")],
    *,
    columns: Annotated[
        str | None, Option(help="which column is what: arrival=ts,prompt=in,output=out")
    ] = None,
    time_unit: Annotated[str | None, Option(help="unit of the arrivals: s, ms, us or ns")] = None,
    max_tokens: Annotated[
        str | None, Option(help="limit that clients send: a number, or exact; default: greatest output")
    ] = None,
    rate: Annotated[
        float | None, Option(help="requests/s: scales time; lengths alone get Poisson arrivals")
    ] = None,
    seed: Annotated[int, Option(help="of a load that is made, such as that of client models")] = 0,
    json: Annotated[bool, Option("--json", help="print JSON (docs/traces.md) instead of text")] = False,
) -> None:
    """Print rate, burstiness, lengths, what the longest of a batch costs, and prefix reuse."""
    from json import dumps

    from batchwright.scenario.loads import max_tokens_of
    from batchwright.workload import Workload, description
    from batchwright.workload.checks import check_seed
    from batchwright.workload.description_text import text
    from batchwright.workload.roles import mapping

    check_seed(seed)
    load = Workload.open(
        file,
        max_tokens=max_tokens_of(max_tokens),
        seed=seed,
        columns=None if columns is None else mapping(columns),
        time_unit=time_unit,
    )
    found = description.describe(load if rate is None else load.at_rate(rate))
    print(dumps(found.to_json(), indent=2) if json else text(found), end="\n" if json else "")
