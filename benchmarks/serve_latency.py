"""What HTTP adds to the time per token: the same streams over the server, and on the driver alone.

    python -m benchmarks.serve_latency --engine mock --streams 200

Both serve `--streams` requests that come at once, greedy, each to its last token.  The time per token of
a request is (last - first) / (tokens - 1): on the engine's clock for the driver, as the client sees it for
the server, which is a process of its own.  Driver and server take turns; what is told is the median of the
ratios of neighbours, so that a machine that is busy with something else disturbs it less.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import time
from os import cpu_count, getloadavg
from pathlib import Path
from random import Random
from statistics import fmean, median

from batchwright.cli.serve import driver, model_of, policy_of_flags
from batchwright.cli.serve_flags import ServeFlags
from batchwright.engines.live import Live
from batchwright.engines.sequence import Sequence
from batchwright.request import Request


def prompts(args: argparse.Namespace, round: int) -> list[list[int]]:
    """Token ids, other ones in every round, so that the prefix cache holds none."""
    random = Random(round)
    return [[random.randrange(33, 126) for _ in range(args.prompt)] for _ in range(args.streams)]


def bare(live: Live, args: argparse.Namespace, round: int) -> float:
    """Mean time per token on the driver alone."""
    now = live.engine.now()
    for id, ids in enumerate(prompts(args, round)):
        live.add(Sequence(Request(round << 20 | id, now, len(ids), args.output), ids))
    times: dict[Sequence, list[float]] = {}
    while live.step() or live.wait():
        for s in live.sampled:
            times.setdefault(s, []).append(live.now)
    live.ended.clear()
    return fmean((seen[-1] - seen[0]) / (len(seen) - 1) for seen in times.values())


async def stream(port: int, ids: list[int], output: int) -> float:
    """The time per token that one client sees."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    asked = {"prompt": ids, "max_tokens": output, "temperature": 0, "ignore_eos": True, "stream": True}
    body = json.dumps(asked).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    seen: list[float] = []
    async for line in reader:
        if line.startswith(b"data: {"):
            seen.append(time.perf_counter())
        elif line.startswith(b"data: [DONE]"):
            break
        elif line.startswith(b"HTTP/1.1") and b" 200 " not in line:
            raise SystemExit(f"the server answers {line!r}")
    writer.close()
    assert len(seen) == output, f"{len(seen)} events for {output} tokens"
    return (seen[-1] - seen[0]) / (len(seen) - 1)


async def over_http(port: int, args: argparse.Namespace, round: int) -> float:
    """Mean time per token that clients of the server see."""
    asked = (stream(port, ids, args.output) for ids in prompts(args, round))
    return fmean(await asyncio.gather(*asked))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--prompt", type=int, default=32, help="tokens")
    parser.add_argument("--output", type=int, default=100, help="tokens")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engine", default="mock")
    parser.add_argument("--mock-cost", default="linear(base=0.006, prefill=0.0001, decode=0.0002)")
    parser.add_argument("--cache", type=Path, help="of models, as of batchwright serve")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--max-num-seqs", type=int, default=200)
    args = parser.parse_args()
    cost = args.mock_cost if args.engine == "mock" else None
    flags = ServeFlags(
        engine=args.engine,
        cache=args.cache,
        mock_cost=cost,
        threads=args.threads,
        max_num_seqs=args.max_num_seqs,
        max_model_len=1024,
    )
    command = [sys.executable, "-m", "batchwright", "serve", "--engine", args.engine, "--port", "0"]
    command += ["--max-num-seqs", str(args.max_num_seqs), "--max-model-len", "1024"]
    command += ["--cache", str(args.cache)] if args.cache else []
    command += ["--threads", str(args.threads), *(["--mock-cost", cost] if cost else [])]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        compare(server, flags, args)
    finally:
        server.terminate()
        server.wait()


def compare(server: subprocess.Popen[str], flags: ServeFlags, args: argparse.Namespace) -> None:
    """Run the rounds; print each, and the ratio."""
    assert server.stdout is not None
    port = 0
    for line in server.stdout:
        port = int(found[1]) if (found := re.search(r":(\d+)/v1", line)) else port
        if line == "ready\n":
            break
    model = model_of(flags)
    live = driver(flags, policy_of_flags(flags), model, lambda line: None)
    ratios = []
    for round in range(args.rounds + 1):
        a, b = bare(live, args, round), asyncio.run(over_http(port, args, round))
        print(f"round {round}: driver {a * 1e3:.2f} ms, server {b * 1e3:.2f} ms a token, ratio {b / a:.3f}")
        if round > 0:  # the first one warms up
            ratios.append(b / a)
    print(f"load average {getloadavg()[0]:.1f} on {cpu_count()} CPUs")
    print(f"median of ratios {median(ratios):.3f}, at {args.streams} streams")


if __name__ == "__main__":
    main()
