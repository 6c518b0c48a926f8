"""The load as a Mooncake trace: one JSON object a line.

    {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, ...]}

`timestamp` is in whole milliseconds from the first arrival, `output_length` what is served,
`hash_ids` one hash per 512 prompt tokens, the last for what is left; only where the load says
how its prompts begin.  `Workload.open` reads it back to the same requests.

Source: kvcache-ai/Mooncake, FAST25-release/traces; Qin et al., Mooncake, FAST 2025.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from batchwright.errors import InputError
from batchwright.export.exported import Exported
from batchwright.metrics import Numbers
from batchwright.workload import Workload
from batchwright.workload.prefix import HASH_TOKENS, Hashes, offsets_of


def mooncake_trace(
    load: Workload,
    *,
    arrival: Numbers | None = None,
    private_hashes: bool = False,
    hash_tokens: int = HASH_TOKENS,
) -> Exported:
    """The requests of `load`, in order of arrival.

    `arrival`: those of a run (`run.arrival`), for a load in which requests follow others.
    `private_hashes`: where the load has no prefixes, give each prompt hashes of its own, so that
    nothing is shared; `vllm bench serve` builds its prompts from them and needs some.
    `hash_tokens`: of one hash; a Mooncake trace has 512.
    Raises InputError if arrivals are not known, or the hashes of the load do not fill `hash_tokens`.
    """
    times = arrivals_of(load, arrival)
    hashes = _hashes(load, private_hashes, hash_tokens)
    lines = [json.dumps(row) for row in _rows(load, times, hashes)]
    notes = _notes(load, times, private_hashes, hash_tokens)
    return Exported(text="".join(f"{line}\n" for line in lines), notes=tuple(notes))


def arrivals_of(load: Workload, arrival: Numbers | None) -> Numbers:
    """Seconds by request.  Raises InputError if only a run knows them."""
    if arrival is None and load.has_followers:
        raise InputError(f"{load.name}: requests follow others, so only a run knows when they come; give one")
    return load.arrival if arrival is None else arrival


def hash_tokens_of(load: Workload) -> int:
    """Tokens of one hash of `load`; 512 if it has none."""
    return HASH_TOKENS if load.columns.hashes is None else load.columns.hashes.tokens


def _rows(load: Workload, times: Numbers, hashes: list[list[int]] | None) -> Iterator[dict[str, object]]:
    milliseconds = np.rint(times * 1000).astype(np.int64).tolist()
    prompt, output = load.prompt.tolist(), load.output.tolist()
    for id in np.argsort(times, kind="stable").tolist():
        row = {"timestamp": milliseconds[id], "input_length": prompt[id], "output_length": output[id]}
        yield row if hashes is None else {**row, "hash_ids": hashes[id]}


def _hashes(load: Workload, private_hashes: bool, tokens: int) -> list[list[int]] | None:
    """Per request, in pieces of `tokens`; None if there are none."""
    pieces = -(-load.prompt // tokens)
    if load.columns.hashes is not None:
        return _coarser(load.name, load.columns.hashes, load.prompt, tokens)
    if not private_hashes:
        return None
    return [list(range(first, end)) for first, end in pairwise(offsets_of(pieces).tolist())]


def _coarser(name: str, hashes: Hashes, prompt: Numbers, tokens: int) -> list[list[int]]:
    """A piece has the hash of the last finer piece in it, which stands for all tokens up to its end."""
    if tokens % hashes.tokens:
        raise InputError(
            f"{name}: its prefix hashes are of {hashes.tokens} tokens, which do not fill the {tokens} of a "
            "hash of the trace; read the load without prefixes"
        )
    step = tokens // hashes.tokens
    ids, found = hashes.ids.tolist(), []
    for start, length in zip(hashes.offsets.tolist(), prompt.tolist(), strict=False):
        own = ids[start : start + -(-length // hashes.tokens)]
        found.append(own[step - 1 :: step] + (own[-1:] if len(own) % step else []))
    return found


def _notes(load: Workload, times: Numbers, private_hashes: bool, tokens: int) -> Iterator[str]:
    if load.has_followers:
        yield "arrivals are those of the run: requests that follow others come when those have ended"
    if np.abs(np.rint(times * 1000) / 1000 - times).max() > 1e-6:
        yield "arrivals are rounded to whole milliseconds, the unit of the format"
    if load.num_cut:
        yield f"output_length is what is served: {load.num_cut} outputs are cut to max_tokens"
    names = _lost(load)
    if names:
        yield f"the format has no place for {' and '.join(names)} of the requests"
    yield from _hash_notes(load, private_hashes, tokens)


def _lost(load: Workload) -> list[str]:
    """Columns that are not in the file, where they say something."""
    lost = {"priority": load.priority, "client": load.client}
    names = [name for name, column in lost.items() if column is not None]
    is_default = len(np.unique(load.max_tokens)) == 1 and load.max_tokens[0] == load.output.max()
    return names if is_default else ["max_tokens", *names]


def _hash_notes(load: Workload, private_hashes: bool, tokens: int) -> Iterator[str]:
    hashes = load.columns.hashes
    if hashes is None:
        if private_hashes:
            yield (
                "hash_ids are made up, each for one prompt alone: the load does not say how its prompts begin"
            )
        return
    if hashes.tokens < tokens:
        yield f"prefixes are shared in pieces of {tokens} tokens; those of the load are of {hashes.tokens}"
    if hashes.covered is not None:
        yield "answers have no hashes: a later prompt that repeats one shares only what was in a prompt"
