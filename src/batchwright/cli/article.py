"""`batchwright article`: the claims of an article on batching, computed again."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from batchwright.article import as_json, full_text, recompute, short_text
from batchwright.article.study import Report
from batchwright.errors import InputError


def article(seeds: int, short: bool, as_object: bool) -> None:
    """Compute everything, print it in full, in ten lines, or as JSON.  Raises BatchwrightError."""
    if short and as_object:
        raise InputError("--short is given together with --json; leave one of them out")
    with _progress() as report:
        found = recompute(seeds, report)
    if as_object:
        print(json.dumps(as_json(found), indent=2))
    else:
        print(short_text(found) if short else full_text(found))


@contextmanager
def _progress() -> Iterator[Report | None]:
    """A bar on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TimeRemainingColumn

    with Progress(BarColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda share: bar.update(task, completed=share)
