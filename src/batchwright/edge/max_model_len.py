"""KV that is set aside for the longest request: what `max_model_len` costs, by who reserves what.

    orca           max_model_len in every slot              blocks of max_model_len
    tensorrt_llm   prompt + max_tokens at admission         E[o (s + max)] / E[o] tokens
    vllm           blocks as they are written               E[g] / E[o] tokens, and half a block

    c = M / (tokens of one)       waste = 1 - E[g] / (E[o] tokens of one)       X = c / (E[o] t(c))

E[g] / E[o]: tokens that a resident has written, seen at a random step.  Source: Little's law for memory
(`theory.continuous`); Kwon et al. 2023 (arXiv 2309.06180), who measured the waste.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, nan
from typing import Final

import numpy as np

from batchwright.edge.seats import OUTPUT, PROMPT, capacity, lengths, load_of, resident_tokens
from batchwright.edge.serve import Progress, Report, at_once, check, estimates, requests_per_second, serve
from batchwright.edge.server import Server
from batchwright.errors import LimitError
from batchwright.interval import Interval
from batchwright.run import Run
from batchwright.theory.continuous import reserved_area
from batchwright.workload import Workload

FIRST: Final = 1024  # tokens
NEEDED: Final = PROMPT[1] + OUTPUT[1]  # of the longest request
ROUNDS: Final = 6  # requests of a seat, at least
STEADY: Final = (0.3, 0.8)  # shares of the ends between which memory is full
GPUS: Final = (1, 2, 4, 8)
ORCA: Final = "orca"
RESERVES: Final = "tensorrt_llm"
PAGED: Final = "vllm"
UNITS: Final = {
    "capacity": "capacity_requests_per_s",
    "capacity_form": "capacity_form_requests_per_s",
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One engine under one `max_model_len`; all requests are there at once.

    tokens_each    KV tokens taken for one request, by formula; `bytes_each`: on each GPU
    batch          the most that run; `batch_form`: as many as memory and seats hold, by formula
    waste          share of the KV taken that holds no token, over all steps
    capacity       requests/s while memory is full
    shortened      share of the requests that are refused, or whose output is cut at `max_model_len`

    Formulas are of whole requests: nan where `max_model_len` is less than the longest needs.
    """

    policy: str
    max_model_len: int
    tokens_each: float
    bytes_each: float
    batch: Interval
    batch_form: float
    waste: Interval
    waste_form: float
    capacity: Interval
    capacity_form: float
    shortened: Interval


@dataclass(frozen=True, kw_only=True)
class Start:
    """What a server starts with.  `longest`: the greatest `max_model_len`; `refused`: why one more is not.

    `at_model_len`: requests of the model's own greatest length that the KV cache holds.
    """

    tp: int
    kv_tokens: int
    longest: int
    at_model_len: float
    refused: str


@dataclass(frozen=True, kw_only=True)
class MaxModelLen:
    """The whole study.  `model_len`: `max_position_embeddings` of the model."""

    server: str
    seed: int
    repeat: int
    requests: int
    model_len: int
    kv_tokens: int
    rows: tuple[Row, ...]
    starts: tuple[Start, ...]


def max_model_len(
    server: Server | None = None,
    *,
    requests: int = 1000,
    seed: int = 0,
    repeat: int = 1,
    report: Report | None = None,
) -> MaxModelLen:
    """`requests` at once.  Raises InputError, and LimitError if the server cannot hold the model."""
    at = server or Server()
    check(requests, repeat, seed, least=100)
    tried = lengths_of(at)
    needed = next(each for each in tried if each >= NEEDED)
    cases = [(ORCA, each) for each in tried]
    cases += [(policy, each) for policy in (RESERVES, PAGED) for each in (needed, tried[-1])]
    progress = Progress(report, len(cases))
    seeds = range(seed, seed + repeat)
    return MaxModelLen(
        server=str(at),
        seed=seed,
        repeat=repeat,
        requests=requests,
        model_len=at.device.model.max_position_embeddings,
        kv_tokens=kv_tokens(at),
        rows=tuple(_row(at, policy, each, requests, seeds, progress) for policy, each in cases),
        starts=tuple(_starts(at)),
    )


def kv_tokens(server: Server) -> int:
    """Tokens that the KV cache holds."""
    limits = server.limits(None)
    return limits.blocks * limits.block_size


def lengths_of(server: Server) -> list[int]:
    """1024, 2048 ... and the greatest that the server starts with.  Raises LimitError if it is too short."""
    most = longest(server)
    if most < NEEDED:
        raise LimitError(
            f"{server} starts with max_model_len {most} at most, but requests here have up to "
            f"{NEEDED} tokens; take more GPUs or a smaller model"
        )
    return [FIRST << i for i in range(most.bit_length()) if FIRST << i < most] + [most]


def longest(server: Server) -> int:
    """The greatest `max_model_len` that the model allows and the KV cache holds."""
    return min(server.device.model.max_position_embeddings, kv_tokens(server))


# --- formulas ---------------------------------------------------------------------------


def tokens_each(server: Server, policy: str, max_model_len: int) -> float:
    """KV tokens taken for a request that is seen at a random step."""
    block = server.limits(None).block_size
    prompts, outputs = lengths()
    if policy == ORCA:
        return float(ceil(max_model_len / block) * block)
    if policy == PAGED:
        return resident_tokens() + (block - 1) / 2
    whole = reserved_area(prompts, outputs, np.full(len(outputs), OUTPUT[1])) / float(outputs.mean())
    return whole + (block - 1) / 2


# --- the simulator ----------------------------------------------------------------------


def _row(
    server: Server, policy: str, max_model_len: int, requests: int, seeds: range, progress: Progress
) -> Row:
    each = tokens_each(server, policy, max_model_len)
    held = min(server.usual[0], kv_tokens(server) / each)
    whole = float(np.floor(held)) if policy == ORCA else held
    count = max(requests, ROUNDS * ceil(whole))
    found = [_figures(server, policy, max_model_len, load_of(count, 1.0, seed)) for seed in seeds]
    progress.step()
    is_whole = max_model_len >= NEEDED  # what is cut has other lengths than the formulas
    return Row(
        policy=policy,
        max_model_len=max_model_len,
        tokens_each=each,
        bytes_each=each * server.device.kv_bytes_per_token,
        batch_form=whole,
        waste_form=1 - resident_tokens() / each if is_whole else nan,
        capacity_form=capacity(server, whole, overlapped=policy == PAGED) if is_whole else nan,
        **estimates(found),
    )


def _figures(server: Server, policy: str, max_model_len: int, load: Workload) -> dict[str, float]:
    run = serve(policy, at_once(load), server.cost, server.limits(max_model_len))
    return {
        "batch": run.state().peak_batch,
        "waste": waste(run),
        "capacity": requests_per_second(run, *STEADY),
        "shortened": (len(run.rejected) + run.num_cut) / len(load),
    }


def waste(run: Run) -> float:
    """Share of the KV taken, in tokens times steps, that holds no token of a request."""
    columns = run.requests()
    done = ~np.isnan(columns["finished_s"])
    prompt, output = columns["prompt_tokens"][done], columns["output_tokens"][done]
    written = float((output * prompt + output * (output - 1) / 2).sum())
    taken = (run.limits.blocks - run.steps()["free_blocks"]) * run.limits.block_size
    return 1 - written / float(taken.sum())


def _starts(server: Server) -> list[Start]:
    return [found for tp in GPUS if (found := _start(Server(server.gpu, server.model, tp))) is not None]


def _start(server: Server) -> Start | None:
    """None if the model cannot be split so, or does not fit."""
    try:
        tokens, most = kv_tokens(server), longest(server)
    except LimitError:
        return None
    model_len = server.device.model.max_position_embeddings
    return Start(
        tp=server.tp,
        kv_tokens=tokens,
        longest=most,
        at_model_len=tokens / model_len,
        refused=refusal(server, most + 1),
    )


def refusal(server: Server, max_model_len: int) -> str:
    """What the server says of a `max_model_len` that it does not start with; "" if it does."""
    try:
        server.limits(max_model_len)
    except LimitError as error:
        return str(error)
    return ""
