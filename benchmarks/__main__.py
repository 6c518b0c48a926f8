"""Measure speed as ratios within one run, so that the machine matters little.

    make bench
    python -m benchmarks --only first,skip --requests 1000 --repeats 2

Every figure is CPU time of the simulation alone, in a fresh process, the best of the repeats,
which are interleaved: ours, peer, ours, peer.  Needs `make compiled` for the compiled rows;
rows that cannot be measured say why.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.builds import compile_first, default_python, runtimes, this_python
from benchmarks.cases import (
    GROWTH_FACTORS,
    MOST_GROWTH,
    MOST_MEGABYTES,
    Case,
    Runtimes,
    cases,
    growth,
    mode,
)
from benchmarks.measure import TAIL, Job, NotMeasured, Result, Runtime, best

GROUPS = ("first", "sched-sim", "skip", "reference", "policies", "growth", "compare")
COMPARE = ("compare", "chat", "--policies", "static,dynamic,continuous", "--requests", "1000")
SAME_END = 0.01  # two simulators whose ends differ by more did different work


def main() -> int:
    options = _options()
    at = runtimes(options.plain, options.compiled, options.peers)
    _say_load(options.trace)
    met = True
    if "first" in options.only:
        _try(lambda: compile_first(options.plain), "first sketch, compiled")
    for case in cases(at, options.requests, options.trace):
        if case.group in options.only:
            met &= _show_case(case, options.repeats)
    if "growth" in options.only:
        met &= _show_growth(at, options.requests)
    if "compare" in options.only:
        _show_compare(at.plain, options.repeats)
    return 0 if met or not options.check else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split("\n")[0])
    parser.add_argument("--requests", type=_positive, default=10_000, help="requests of a run (10000)")
    parser.add_argument("--repeats", type=_positive, default=5, help="runs of each, the best counts (5)")
    parser.add_argument("--only", type=_groups, default=GROUPS, help=f"some of: {','.join(GROUPS)}")
    parser.add_argument("--check", action="store_true", help="exit 1 if a target is missed or not measured")
    parser.add_argument("--trace", type=_file, default=os.environ.get("BATCHWRIGHT_AZURE_CONV"),
                        help="AzureLLMInferenceTrace_conv.csv, for W2 (BATCHWRIGHT_AZURE_CONV)")  # fmt: skip
    parser.add_argument("--plain", type=Path, default=this_python(), help="Python for interpreted code")
    parser.add_argument("--compiled", type=Path, default=default_python(".venv-compiled"),
                        help="Python that has the compiled wheel")  # fmt: skip
    parser.add_argument("--peers", type=Path, default=default_python(".venv-peers"),
                        help="Python that has benchmarks/peers.txt")  # fmt: skip
    return parser.parse_args()


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number of at least 1")
    return int(text)


def _groups(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    unknown = set(chosen) - set(GROUPS)
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown {sorted(unknown)}; known: {', '.join(GROUPS)}")
    return chosen


def _file(text: str) -> str:
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is no file; correct it, or leave it out for a stand-in")
    return str(Path(text).resolve())


def _say_load(trace: str | None) -> None:
    lengths = f"lengths of {Path(trace).name}" if trace else "STAND-IN lengths (lognormal; no trace given)"
    print(f"W1: 512/128 tokens, 20/s.  W2: {lengths}, 6/s.  W3: 512/2000 tokens, 1/s.")
    print(f"{'':62} {'ours':>10} {'peer':>10} {'ratio':>7} {'target':>7}")


def _show_case(case: Case, repeats: int) -> bool:
    """Print one line; whether the target was reached."""
    try:
        ours, peer = best([case.ours, case.peer], repeats)
    except NotMeasured as error:
        return _not_measured(case.name, error)
    ratio = (case.ours.num_requests / ours.seconds) / (case.peer.num_requests / peer.seconds)
    met = ratio >= case.target
    print(
        f"{case.name:62} {_rate(case.ours, ours)} {_rate(case.peer, peer)} {ratio:7.2f} {case.target:7.2f} "
        f"{'ok' if met else 'BELOW'}{_other_end(ours, peer)}",
        flush=True,
    )
    return met


def _rate(job: Job, result: Result) -> str:
    return f"{job.num_requests / result.seconds:8.0f}/s"


def _other_end(ours: Result, peer: Result) -> str:
    if abs(ours.end - peer.end) <= SAME_END * peer.end:
        return ""
    return f" (other work: ends at {ours.end:.1f} s, peer at {peer.end:.1f} s)"


def _show_growth(at: Runtimes, num_requests: int) -> bool:
    """Time per request of longer and longer runs, and the memory of the longest."""
    met = True
    for runtime in (at.plain, at.compiled):
        name = f"W1 {mode(runtime)}, {' / '.join(f'{num_requests * n:,}' for n in GROWTH_FACTORS)} requests"
        jobs = growth(runtime, num_requests)
        try:
            met &= _show_growth_of(name, jobs, best(jobs, 2))
        except NotMeasured as error:
            met = _not_measured(name, error)
    return met


def _show_growth_of(name: str, jobs: Sequence[Job], results: Sequence[Result]) -> bool:
    each = [result.seconds / job.num_requests for job, result in zip(jobs, results, strict=True)]
    grown, peak = each[-1] / each[0], results[-1].megabytes
    met = grown < MOST_GROWTH and peak <= MOST_MEGABYTES
    print(f"{name}: {', '.join(f'{1e6 * seconds:.2f}' for seconds in each)} us a request")
    print(f"    grows x{grown:.2f} (below {MOST_GROWTH}), peak {peak:.0f} MB (at most {MOST_MEGABYTES}) "
          f"{'ok' if met else 'OVER'}", flush=True)  # fmt: skip
    return met


def _show_compare(runtime: Runtime, repeats: int) -> None:
    """The command line as a whole process, beside its own `--help`."""
    name = "batchwright " + " ".join(COMPARE)
    try:
        whole = min(_command_seconds(runtime, COMPARE) for _ in range(repeats))
        bare = min(_command_seconds(runtime, ("--help",)) for _ in range(repeats))
    except NotMeasured as error:
        _not_measured(name, error)
        return
    print(f"{name}: {whole:.2f} s of CPU, {whole / bare:.1f} times `--help` ({bare:.2f} s)")


def _command_seconds(runtime: Runtime, arguments: Sequence[str]) -> float:
    began = _children_seconds()
    done = subprocess.run(
        [runtime.python, "-c", "from batchwright.cli import main; main()", *arguments],
        env=runtime.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise NotMeasured((done.stderr.strip().splitlines() or ["no output"])[-1][:TAIL])
    return _children_seconds() - began


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _try(action: Callable[[], None], name: str) -> None:
    try:
        action()
    except NotMeasured as error:
        _not_measured(name, error)


def _not_measured(name: str, error: NotMeasured) -> bool:
    print(f"{name:62} not measured: {error}", flush=True)
    return False


if __name__ == "__main__":
    sys.exit(main())
