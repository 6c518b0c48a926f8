"""`batchwright article`: the claims of an article on batching, computed again."""

from __future__ import annotations

import json
from functools import partial

from batchwright.article import as_json, full_text, recompute, short_text
from batchwright.cli.progress import progress
from batchwright.errors import InputError


def article(seeds: int, *, short: bool, as_object: bool) -> None:
    """Compute everything, print it in full, in ten lines, or as JSON.  Raises BatchwrightError."""
    if short and as_object:
        raise InputError("--short is given together with --json; leave one of them out")
    with progress(1) as report:
        found = recompute(seeds, None if report is None else partial(report, "article"))
    if as_object:
        print(json.dumps(as_json(found), indent=2))
    else:
        print(short_text(found) if short else full_text(found))
