"""Progress on a terminal, with the time that is left; nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from batchwright.comparison import Progress, run
from batchwright.run import Run
from batchwright.scenario.build import Prepared


@contextmanager
def progress(count: int) -> Iterator[Progress | None]:
    """What to tell how far each of `count` parts is; None if nobody looks."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=count)
        finished: dict[str, float] = {}

        def report(name: str, share: float) -> None:
            finished[name] = share
            bar.update(task, description=name, completed=sum(finished.values()))

        yield report


def run_each(prepared: Prepared) -> dict[str, Run]:
    """Every policy of a scenario once, by name."""
    runs = {}
    with progress(len(prepared.policies)) as report:
        for name, policy in prepared.policies.items():
            with prepared.blaming(name):
                runs[name] = run(name, policy, prepared.load, prepared.cost, prepared.limits, report)
    return runs
