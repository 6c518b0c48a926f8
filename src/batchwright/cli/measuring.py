"""The commands that take measurements: `import`, `fit`, `validate`, `accuracy`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from typer import Argument, Option

_TIMED: Final = "Server (where a file has timings of requests alone)"


def import_file(
    file: Annotated[Path, Argument(help="what another tool wrote; or a folder of it")],
    *,
    run: Annotated[
        str | None, Option(help="which one, where the file holds several: its number from 0, or its name")
    ] = None,
    output: Annotated[Path | None, Option("-o", "--output", help="folder for what was read")] = None,
    force: Annotated[bool, Option("--force", help="replace a folder of that kind")] = False,
    json: Annotated[bool, Option("--json", help="print JSON (docs/import.md)")] = False,
) -> None:
    """Read what another tool measured, check it, and show it by our definitions."""
    from batchwright.cli.imports import import_file

    import_file(file, run, output, force, json)


def fit(
    files: Annotated[
        list[Path], Argument(help="run folders or logs of steps, or the timings of requests, of one server")
    ],
    *,
    output: Annotated[
        Path | None, Option("-o", "--output", help="profile (.yaml) to write, for --profile")
    ] = None,
    name: Annotated[str | None, Option(help="name of the profile; default: that of its file")] = None,
    run: Annotated[str | None, Option(help="run to fit, where a file holds several")] = None,
    attention: Annotated[
        bool, Option(help="fit what attention takes, too: KV tokens read, and pairs of a prompt")
    ] = True,
    like: Annotated[
        str | None, Option(help="how the server was started: 'vllm serve ...'", rich_help_panel=_TIMED)
    ] = None,
    gpu: Annotated[
        str | None, Option(help="GPU; default: H100-SXM", rich_help_panel=_TIMED)
    ] = None,
    model: Annotated[
        str | None, Option(help="its model; default: llama-3.1-8b", rich_help_panel=_TIMED)
    ] = None,
    tp: Annotated[
        int | None,
        Option("--tp", "--tensor-parallel-size", help="GPUs to a model", rich_help_panel=_TIMED),
    ] = None,
    policy: Annotated[
        str | None, Option(help="scheduler: vllm@0.19", rich_help_panel=_TIMED)
    ] = None,
    load: Annotated[
        str | None, Option(help="trace that says more of the same requests", rich_help_panel=_TIMED)
    ] = None,
    held_out: Annotated[
        float | None,
        Option(help="share of requests to test on; default: 0.5", rich_help_panel=_TIMED),
    ] = None,
    set: Annotated[
        list[str] | None, Option(help="key=value of a scenario; may be repeated", rich_help_panel=_TIMED)
    ] = None,
    force: Annotated[bool, Option("--force", help="replace a file that is there")] = False,
    json: Annotated[bool, Option("--json", help="print JSON (docs/fit.md) instead of tables")] = False,
) -> None:
    """Fit a cost model to measured steps or requests, with error bars, and keep it as a profile."""
    from batchwright.cli.fit import fit
    from batchwright.cli.fit_requests import ServerFlags
    from batchwright.cli.fit_settings import Settings

    server = ServerFlags(
        like=like, gpu=gpu, model=model, tp=tp, policy=policy, load=load, held_out=held_out, sets=set or []
    )
    fit(
        files,
        Settings(output=output, name=name, run=run, attention=attention, force=force, as_json=json),
        server,
    )


def validate(
    folder: Annotated[Path, Argument(metavar="RUN", help="run folder, of compare -o")],
    *,
    against: Annotated[Path, Option(help="what was measured: a file that import reads, or a folder of it")],
    run: Annotated[
        str | None, Option(help="which run of the measured file, if it holds several: its number or name")
    ] = None,
    policy: Annotated[str | None, Option(help="policy of the run folder, if it has several")] = None,
    skip: Annotated[int, Option(help="leave out the first N requests by arrival, on both sides")] = 0,
    bound: Annotated[
        list[str] | None, Option(help="exit 3 if an error is greater, as e2e.mean=5%; may be repeated")
    ] = None,
    plot: Annotated[Path | None, Option(help="draw it to this file, .svg or .png")] = None,
    force: Annotated[bool, Option("--force", help="replace a picture that is there")] = False,
    json: Annotated[bool, Option("--json", help="print JSON (docs/json.md) instead of tables")] = False,
) -> int:
    """Predicted against measured: how far off, where, and where to look."""
    from batchwright.cli.validate import Settings, validate

    settings = Settings(
        against=against,
        run=run,
        policy=policy,
        skip=skip,
        bounds=bound or [],
        plot=plot,
        force=force,
        as_json=json,
    )
    return validate(folder, settings)


def accuracy(
    data: Annotated[Path, Argument(help="folder of published measurements, or of some of them")],
    *,
    output: Annotated[Path | None, Option("-o", "--output", help="write the page to this file (.md)")] = None,
    strict: Annotated[bool, Option("--strict", help="refuse a folder that lacks some of them")] = False,
    force: Annotated[bool, Option("--force", help="replace a file that is there")] = False,
    json: Annotated[bool, Option("--json", help="print JSON (docs/json.md) instead of the page")] = False,
) -> None:
    """Predicted against published measurements: the page docs/accuracy.md, made anew."""
    from batchwright.cli.accuracy import Settings, accuracy

    accuracy(data, Settings(output=output, strict=strict, force=force, as_json=json))
