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
from itertools import accumulate, pairwise

import numpy as np

from batchwright.errors import InputError
from batchwright.export.exported import Exported
from batchwright.workload import Workload
from batchwright.workload.prefix import HASH_TOKENS, Hashes


def mooncake_trace(load: Workload, private_hashes: bool = False) -> Exported:
    """The requests of `load`, in order of arrival.

    `private_hashes`: where the load has no prefixes, give each prompt hashes of its own, so that
    nothing is shared; `vllm bench serve` builds its prompts from them and needs some.
    Raises InputError if the hashes of the load are not of 512 tokens.
    """
    lines = [
        json.dumps(row, separators=(", ", ": ")) for row in _rows(load, _hash_lists(load, private_hashes))
    ]
    return Exported(text="\n".join(lines) + "\n", notes=tuple(_notes(load, private_hashes)))


def _rows(load: Workload, hashes: Iterator[list[int]] | None) -> Iterator[dict[str, object]]:
    times = np.rint(load.arrival * 1000).astype(np.int64).tolist()
    for time, prompt, output in zip(times, load.prompt.tolist(), load.output.tolist(), strict=True):
        row = {"timestamp": time, "input_length": prompt, "output_length": output}
        yield row if hashes is None else {**row, "hash_ids": next(hashes)}


def _hash_lists(load: Workload, private_hashes: bool) -> Iterator[list[int]] | None:
    hashes = load.columns.hashes
    if hashes is not None:
        return _own(load.name, hashes)
    return _private(load) if private_hashes else None


def _own(name: str, hashes: Hashes) -> Iterator[list[int]]:
    if hashes.tokens != HASH_TOKENS:
        raise InputError(
            f"{name}: its prefix hashes are of {hashes.tokens} tokens, those of a Mooncake trace of "
            f"{HASH_TOKENS}; read the load without prefixes"
        )
    ids, offsets = hashes.ids.tolist(), hashes.offsets.tolist()
    return (ids[first:end] for first, end in pairwise(offsets))


def _private(load: Workload) -> Iterator[list[int]]:
    ends = list(accumulate((-(-load.prompt // HASH_TOKENS)).tolist()))
    return (list(range(first, end)) for first, end in pairwise([0, *ends]))


def _notes(load: Workload, private_hashes: bool) -> Iterator[str]:
    if np.abs(np.rint(load.arrival * 1000) / 1000 - load.arrival).max() > 1e-6:
        yield "arrivals are rounded to whole milliseconds, the unit of the format"
    if load.num_cut:
        yield f"output_length is what is served: {load.num_cut} outputs are cut to max_tokens"
    lost = {"priority": load.priority, "client": load.client}
    names = [name for name, column in lost.items() if column is not None]
    if len(np.unique(load.max_tokens)) > 1 or load.max_tokens[0] != load.output.max():
        names.insert(0, "max_tokens")
    if names:
        yield f"the format has no place for {' and '.join(names)} of the requests"
    if private_hashes and not load.has_prefixes:
        yield "hash_ids are made up, each for one prompt alone: the load does not say how its prompts begin"
