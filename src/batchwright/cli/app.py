"""The commands; what they do is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer
from typer import Argument, Option

from batchwright.cli import INTERRUPTED
from batchwright.cli.edge import edge
from batchwright.cli.engine import EngineFlags, EngineName, Exact, KvCacheDtype, MockCost, Threads, Weights
from batchwright.cli.kv import kv
from batchwright.cli.measuring import accuracy, fit, import_file, validate
from batchwright.cli.model import CachePath, ModelPath, cache_folder, model
from batchwright.cli.options import live_command, scenario_command
from batchwright.cli.serve_flags import ServeFlags, serve_command
from batchwright.cli.workload import workload
from batchwright.errors import InputError
from batchwright.scenario.keys import Scenario

app = typer.Typer(
    help="Predict, explain and run the batching policy of an LLM inference server.",
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
OTHER_WORDS: Final = {"": ["--help"], "--version": ["version"]}  # for a command


def run(arguments: list[str]) -> int:
    """Run one command; its exit status.  Raises BatchwrightError on bad input."""
    try:
        words = OTHER_WORDS.get(" ".join(arguments), arguments)
        status = app(words, prog_name="batchwright", standalone_mode=False)
    except typer.TyperException as error:
        raise InputError(f"{_said(error)}; see batchwright --help") from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    if status == INTERRUPTED:  # what typer makes of Ctrl-C
        raise KeyboardInterrupt
    return status if isinstance(status, int) else 0


def _said(error: typer.TyperException) -> str:
    """What typer says, with the value where it leaves that out."""
    said, cause = error.format_message().rstrip("."), error.__cause__
    if cause is None or not hasattr(cause, "errors"):
        return said
    return f"{said}, not {cause.errors()[0]['input']!r}"


@app.callback()
def _root() -> None:
    """Predict, explain and run the batching policy of an LLM inference server."""


@app.command()
def version(*, json: Annotated[bool, Option("--json", help="print JSON (docs/json.md)")] = False) -> None:
    """Print the version, and whether the core runs compiled or interpreted."""
    from batchwright import batch
    from batchwright.version import __version__

    mode = "interpreted (pure Python)" if (batch.__file__ or "").endswith(".py") else "compiled (mypyc)"
    if json:
        from json import dumps

        print(dumps({"version": __version__, "core": mode.partition(" ")[0]}))
    else:
        print(f"batchwright {__version__}, core {mode}")


@app.command()
@scenario_command
def compare(
    scenario: Scenario,
    *,
    window_report: Annotated[
        str | None, Option(help="percentiles per window of arrivals, such as 5m")
    ] = None,
    output: Annotated[
        Path | None, Option("-o", "--output", help="folder for requests, steps, summary and configuration")
    ] = None,
    force: Annotated[bool, Option("--force", help="replace a run folder that is there")] = False,
    json: Annotated[bool, Option("--json", help="print JSON (docs/json.md) instead of a table")] = False,
) -> None:
    """Compare batching policies on one workload."""
    from batchwright.cli.compare import Output, compare

    compare(scenario, Output(as_json=json, folder=output, force=force, window=window_report))


@app.command()
@live_command
def live(
    scenario: Scenario,
    *,
    engine: EngineName = "openvino",
    path: ModelPath = None,
    cache: CachePath = None,
    threads: Threads = None,
    kv_cache_dtype: KvCacheDtype = None,
    exact: Exact = False,
    weights: Weights = None,
    mock_cost: MockCost = None,
    attempts: Annotated[
        int, Option(help="runs of a policy, at most, while the machine drifts by more than 3 %")
    ] = 3,
    calibration: Annotated[
        str, Option(help="before the runs, or meanwhile: during each run, with its clock stopped")
    ] = "before",
    output: Annotated[
        Path | None, Option("-o", "--output", help="folder for two run folders: predicted, measured")
    ] = None,
    force: Annotated[bool, Option("--force", help="replace a run folder that is there")] = False,
    json: Annotated[bool, Option("--json", help="print JSON (docs/live.md) instead of tables")] = False,
) -> None:
    """Predict what policies do on a real engine, then measure it."""
    from batchwright.cli.live import Measuring, Output, live

    flags = EngineFlags(
        engine=engine,
        path=path,
        cache=cache_folder(cache),
        threads=threads,
        kv_cache_dtype=kv_cache_dtype,
        exact=exact,
        weights=weights,
        mock_cost=mock_cost,
    )
    how = Measuring(attempts=attempts, calibration=calibration)
    live(scenario, flags, how, Output(as_json=json, folder=output, force=force))


@app.command()
@scenario_command
def timeline(
    scenario: Scenario,
    *,
    ids: Annotated[str | None, Option(help="requests to draw, such as 3,7,12")] = None,
    first: Annotated[int | None, Option(help="draw the first N requests; default: 12")] = None,
    start: Annotated[
        int | None, Option("--from", help="first step to draw; default: that of these requests")
    ] = None,
    steps: Annotated[int | None, Option(help="how many; default: to the end of these requests")] = None,
    scale: Annotated[int | None, Option(help="steps of one character; default: what fits")] = None,
    json: Annotated[bool, Option("--json", help="print JSON (docs/timeline.md)")] = False,
) -> None:
    """Draw a few requests under each policy, one character a step."""
    from batchwright.cli.timeline import Settings, timeline

    timeline(scenario, Settings(ids=ids, first=first, start=start, steps=steps, scale=scale, as_json=json))


@app.command()
@scenario_command
def export(
    scenario: Scenario,
    *,
    output: Annotated[Path, Option("-o", "--output", help="the file to write")],
    format: Annotated[str, Option(help="mooncake, vllm-bench, perfetto or command")],
    policy: Annotated[str | None, Option(help="the one policy to run; default: vllm")] = None,
    force: Annotated[bool, Option("--force", help="replace a file that is there")] = False,
    private_hashes: Annotated[
        bool, Option("--private-hashes", help="mooncake: make up hash_ids where the load has none")
    ] = False,
    detailed: Annotated[bool, Option(help="vllm-bench: with one entry per request")] = True,
    goodput: Annotated[
        list[str] | None, Option(help="vllm-bench: a goal such as ttft:200 (ms); may be repeated")
    ] = None,
    draw: Annotated[int | None, Option(help="perfetto: at most N requests; default: 500")] = None,
    since: Annotated[float, Option(help="perfetto: those that are there from this second on")] = 0.0,
    until: Annotated[float | None, Option(help="perfetto: and have come by this one")] = None,
    serve_model: Annotated[
        str | None, Option(help="what vllm serve calls the model; default: that of --model")
    ] = None,
    json: Annotated[
        bool, Option("--json", help="print JSON (docs/export.md) about what was written")
    ] = False,
) -> None:
    """Write the load, or one run of it, for another tool."""
    from batchwright.cli.export import Settings, export

    export(
        scenario,
        Settings(
            output=output,
            format=format,
            policy=policy,
            force=force,
            private_hashes=private_hashes,
            detailed=detailed,
            goodput=goodput or [],
            draw=draw,
            since=since,
            until=until,
            serve_model=serve_model,
            as_json=json,
        ),
    )


@app.command()
@scenario_command
def theory(
    scenario: Scenario,
    *,
    json: Annotated[bool, Option("--json", help="print JSON (docs/theory.md) instead of text")] = False,
) -> None:
    """Show the closed forms for one workload and server, beside simulation."""
    from batchwright.cli.theory import theory

    theory(scenario, as_json=json)


@app.command()
def policies(
    names: Annotated[list[str] | None, Argument(help="of some policies only")] = None,
    *,
    json: Annotated[bool, Option("--json", help="print JSON (docs/policies.md) instead of tables")] = False,
) -> None:
    """What each batching policy does, its flags, its source, and what it leaves out."""
    from batchwright.cli.policies import policies

    policies(names or [], json)


app.command()(kv)
app.command("import")(import_file)
app.command()(fit)


@app.command()
def gpus(
    names: Annotated[list[str] | None, Argument(help="of some GPUs only")] = None,
    *,
    json: Annotated[bool, Option("--json", help="print JSON (docs/hardware.md) instead of tables")] = False,
) -> None:
    """The GPUs that are known by name: memory, bandwidth, arithmetic, links, and the source of each."""
    from batchwright.cli.catalogue import gpus

    gpus(names or [], json)


@app.command()
def models(
    names: Annotated[list[str] | None, Argument(help="of some models only: names, or config.json")] = None,
    *,
    json: Annotated[bool, Option("--json", help="print JSON (docs/hardware.md) instead of a table")] = False,
) -> None:
    """The models that are known by name: parameters, weights, KV cache."""
    from batchwright.cli.catalogue import models

    models(names or [], json)


@app.command()
def operators(
    *,
    gpu: Annotated[str | None, Option(help="such as h100_sxm; without GPU and model: what there is")] = None,
    model: Annotated[str | None, Option(help="name, or folder of a config.json")] = None,
    tp: Annotated[int, Option("--tp", "--tensor-parallel-size", help="GPUs that share the model")] = 1,
    enable_expert_parallel: Annotated[
        bool, Option("--enable-expert-parallel", help="whole experts, spread over all GPUs")
    ] = False,
    engine: Annotated[str, Option(help="vllm, sglang or trtllm")] = "vllm",
    engine_version: Annotated[str | None, Option(help="default: the usual one of the package")] = None,
    quantization: Annotated[str | None, Option(help="of weights, such as fp8")] = None,
    kv_cache_dtype: Annotated[str, Option(help="such as fp8; auto: 16 bits")] = "auto",
    json: Annotated[bool, Option("--json", help="print JSON (docs/measured.md)")] = False,
) -> None:
    """Step times from operators that an installed package has measured, beside the roofline."""
    from batchwright.cli.operators import Given, operators

    operators(
        Given(
            gpu=gpu,
            model=model,
            tp=tp,
            ep=enable_expert_parallel,
            engine=engine,
            version=engine_version,
            quantization=quantization,
            kv_cache_dtype=kv_cache_dtype,
        ),
        json,
    )


config = typer.Typer(help="Make, check and describe scenario files.", rich_markup_mode=None)
app.add_typer(config, name="config")
app.add_typer(workload, name="workload")
app.add_typer(model, name="model")
app.add_typer(edge, name="edge")
_FILE = Annotated[Path, Argument(help="scenario (.yaml)")]


@config.command("init")
def config_init(
    file: _FILE, *, force: Annotated[bool, Option("--force", help="replace a file that is there")] = False
) -> None:
    """Write a scenario with every key, explained."""
    from batchwright.cli.config import init

    init(file, force)


@config.command("validate")
def config_validate(
    file: _FILE, *, json: Annotated[bool, Option("--json", help="print JSON (docs/json.md)")] = False
) -> None:
    """Check a scenario, its load, server and policies without running it."""
    from batchwright.cli.config import validate

    validate(file, json)


@config.command("schema")
def config_schema() -> None:
    """Print the JSON schema of scenarios."""
    from batchwright.cli.config import schema

    schema()


runs = typer.Typer(help="Run folders, which compare -o writes.", rich_markup_mode=None)
app.add_typer(runs, name="runs")


@runs.command("diff")
def runs_diff(
    a: Annotated[Path, Argument(help="run folder")],
    b: Annotated[Path, Argument(help="run folder that is compared with it")],
    *,
    json: Annotated[bool, Option("--json", help="print JSON (docs/json.md) instead of tables")] = False,
) -> None:
    """What is set differently in two runs, and what came out differently."""
    from batchwright.cli.runs import diff

    diff(a, b, json)


app.command()(validate)
app.command()(accuracy)


@app.command()
def article(
    *,
    seeds: Annotated[int, Option(help="workloads to average over, at least 10")] = 200,
    short: Annotated[bool, Option("--short", help="ten lines")] = False,
    json: Annotated[bool, Option("--json", help="print JSON (docs/article.md)")] = False,
) -> None:
    """Compute an article's claims on batching again, beside the same workload run step by step."""
    from batchwright.cli.article import article

    article(seeds, short=short, as_object=json)


@app.command()
@serve_command
def serve(flags: ServeFlags) -> None:
    """Serve a model under a policy, with OpenAI's HTTP interface."""
    from batchwright.cli.serve import serve

    serve(flags)
