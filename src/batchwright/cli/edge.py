"""`batchwright edge`: where batching goes wrong, with numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer
from typer import Option

from batchwright.scenario.keys import SERVER

if TYPE_CHECKING:
    from batchwright.edge.answer import Answer
    from batchwright.edge.serve import Report
    from batchwright.edge.server import Server

Study = TypeVar("Study")
edge: Final = typer.Typer(
    help="Where batching goes wrong: what happens, why, and what to do.", rich_markup_mode=None
)
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
    from batchwright.edge.short_flood import UNITS, answer, short_flood

    with _progress() as report:
        study = short_flood(
            _server(gpu, model, tp), requests=requests, seed=seed, repeat=repeat, report=report
        )
    _print(study, answer, UNITS, json)


@edge.command("long-prompt")
def long_prompt(
    *,
    gpu: Gpu = H100,
    model: Model = LLAMA,
    tp: Tp = 1,
    long_tokens: Annotated[int, Option(help="tokens of a long prompt")] = 24_576,
    itl: Annotated[str, Option(help="gap between tokens to find a token budget for")] = "50ms",
    requests: Annotated[int, Option(help="short ones of one load")] = 1000,
    seed: Seed = 0,
    repeat: Repeat = 2,
    json: Json = False,
) -> None:
    """Rare long prompts that block short requests: chunks, thresholds, orders, disaggregation."""
    from batchwright.durations import duration
    from batchwright.edge.long_prompt import UNITS, long_prompt
    from batchwright.edge.long_prompt_words import answer

    goal = duration(itl, "--itl")
    with _progress() as report:
        study = long_prompt(
            _server(gpu, model, tp),
            requests=requests,
            seed=seed,
            repeat=repeat,
            long_tokens=long_tokens,
            itl_goal=goal,
            report=report,
        )
    _print(study, answer, UNITS, json)


@edge.command("max-num-seqs")
def max_num_seqs(
    *,
    gpu: Gpu = H100,
    model: Model = LLAMA,
    tp: Tp = 1,
    rate: Annotated[
        float | None, Option(help="requests/s; default: 0.8 of what the server can do, by formula")
    ] = None,
    requests: Requests = 1000,
    seed: Seed = 0,
    repeat: Repeat = 1,
    json: Json = False,
) -> None:
    """More requests than seats: the queue, the wall of the KV cache, tensor parallelism or replicas."""
    from batchwright.edge.max_num_seqs import UNITS, max_num_seqs
    from batchwright.edge.max_num_seqs_words import answer

    with _progress() as report:
        study = max_num_seqs(
            _server(gpu, model, tp), requests=requests, rate=rate, seed=seed, repeat=repeat, report=report
        )
    _print(study, answer, UNITS, json)


@edge.command("max-model-len")
def max_model_len(
    *,
    gpu: Gpu = H100,
    model: Model = LLAMA,
    tp: Tp = 1,
    requests: Requests = 1000,
    seed: Seed = 0,
    repeat: Repeat = 1,
    json: Json = False,
) -> None:
    """KV that is set aside for the longest request, by who reserves what."""
    from batchwright.edge.max_model_len import UNITS, max_model_len
    from batchwright.edge.max_model_len_words import answer

    with _progress() as report:
        study = max_model_len(
            _server(gpu, model, tp), requests=requests, seed=seed, repeat=repeat, report=report
        )
    _print(study, answer, UNITS, json)


def _server(gpu: str, model: str, tp: int) -> Server:
    from batchwright.edge.server import Server

    return Server(gpu, model, tp)


@contextmanager
def _progress() -> Iterator[Report | None]:
    """What to tell the share that is done; None if nobody looks."""
    from batchwright.cli.progress import progress

    with progress(1) as report:
        yield None if report is None else partial(report, "edge")


def _print(
    study: Study, answer: Callable[[Study], Answer], units: Mapping[str, str], as_object: bool
) -> None:
    """As text or JSON."""
    from json import dumps

    from batchwright.edge.answer import as_json

    found = answer(study)
    if as_object:
        print(dumps({**as_json(study, units), "answer": list(found.answer)}, indent=2))
    else:
        print(found.text())
