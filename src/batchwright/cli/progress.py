"""Progress on a terminal, with the time that is left; nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
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


@contextmanager
def stages() -> Iterator[Callable[[str, float], None]]:
    """What to tell what is being done, and how far that is; nobody hears it if nobody looks.

    Drawn twice a second, so that what is measured meanwhile is hardly disturbed.
    """
    if not sys.stderr.isatty():
        yield lambda text, share: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, refresh_per_second=2) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda text, share: bar.update(task, description=text, completed=share)


def run_each(prepared: Prepared) -> dict[str, Run]:
    """Every policy of a scenario once, by name."""
    runs = {}
    with progress(len(prepared.policies)) as report:
        for name, policy in prepared.policies.items():
            with prepared.blaming(name):
                runs[name] = run(name, policy, prepared.load, prepared.cost, prepared.limits, report)
    return runs
