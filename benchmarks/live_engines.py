"""The OpenVINO engine beside other CPU servers of the same model: one burst, all requests at once.

    python -m benchmarks.live_engines --model DIR [--repeats 5] [--threads 1]
    python -m benchmarks.live_engines --model DIR --gguf FILE --llama PYTHON

DIR holds the model and its tokenizer in OpenVINO IR.  `--llama` is a Python that has the package
xllamacpp, whose llama.cpp server runs FILE.  Runs are interleaved: ours, theirs, ours, theirs; the
medians count.  CPU time is shown beside wall time, and is the one to trust where the machine is busy.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from os import getloadavg
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import numpy as np

from batchwright import Limits, Request
from batchwright.engines import sequence as sequences
from batchwright.engines.live import Live
from batchwright.engines.openvino import OpenVino
from batchwright.policies import Vllm
from benchmarks.measure import ROOT

MAX_NUM_SEQS: Final = 16
BUDGET: Final = 512  # tokens of a step
NUM_BLOCKS: Final = 400
MOST_OF_GENAI: Final = 1.03  # wall time
LEAST_OF_LLAMA: Final = 2.5  # throughput
MOST_PYTHON: Final = 0.01  # of a step


class Ask(NamedTuple):
    """A request of the burst: the ids of its prompt, and the length of its output."""

    prompt: list[int]
    output: int


class Spent(NamedTuple):
    """Seconds of a burst."""

    wall: float
    cpu: float


def burst(num_requests: int) -> list[Ask]:
    """Prompts of 32 to 256 random tokens, outputs of 16 to 128."""
    random = np.random.default_rng(0)
    lengths = zip(random.integers(32, 257, num_requests), random.integers(16, 129, num_requests), strict=True)
    return [Ask(random.integers(100, 49000, prompt).tolist(), int(output)) for prompt, output in lengths]


def main() -> int:
    options = _options()
    engine = OpenVino.load(
        options.model / "openvino_model.xml",
        threads=options.threads,
        num_kv_blocks=NUM_BLOCKS,
        max_model_len=1024,
        kv_cache_precision=options.kv,
    )
    print(
        f"{options.requests} requests at once, at most {MAX_NUM_SEQS} running, {options.threads} thread(s), "
        f"KV {options.kv}, {engine.precision}, load average {getloadavg()[0]:.1f}"
    )
    runs = {"ours": lambda asks: _timed(lambda: _ours(engine, asks))}
    runs["OpenVINO GenAI"] = _genai(options)
    if options.llama:
        runs["llama.cpp server"] = _llama(options)
    asks = burst(options.requests)
    times: dict[str, list[Spent]] = {name: [] for name in runs}
    for _ in range(options.repeats):
        for name, run in runs.items():
            times[name].append(run(asks))
            print(
                f"    {name:18} {times[name][-1].wall:6.2f} s wall {times[name][-1].cpu:6.2f} s CPU",
                flush=True,
            )
    met = _show(times, sum(ask.output for ask in asks))
    met &= _show_python(engine)
    return 0 if met else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live_engines")
    parser.add_argument(
        "--model", type=Path, required=True, help="folder with openvino_model.xml and its tokenizer"
    )
    parser.add_argument("--gguf", type=Path, help="the same weights for llama.cpp")
    parser.add_argument("--llama", type=Path, help="Python that has xllamacpp")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--kv", choices=("u8", "f16"), default="u8", help="precision of the KV cache (u8)")
    parser.add_argument("--requests", type=int, default=64, help="requests of a burst (64)")
    parser.add_argument("--repeats", type=int, default=5, help="bursts of each (5)")
    return parser.parse_args()


def _timed(action: Callable[[], None]) -> Spent:
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    return Spent(time.perf_counter() - wall, time.process_time() - cpu)


def _ours(engine: OpenVino, asks: Sequence[Ask]) -> None:
    _live(engine, asks).run()


def _live(engine: OpenVino, asks: Sequence[Ask]) -> Live:
    limits = Limits(
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=BUDGET,
        block_size=engine.capacity.block_size or 0,
        num_kv_blocks=NUM_BLOCKS,
        max_model_len=1024,
        enable_prefix_caching=False,
    )
    live = Live(Vllm(async_scheduling=False), engine, limits)
    for id, ask in enumerate(asks):
        live.add(sequences.Sequence(Request(id, 0.0, len(ask.prompt), ask.output), ask.prompt))
    live.drain()
    return live


def _genai(options: argparse.Namespace) -> Callable[[Sequence[Ask]], Spent]:
    import openvino
    import openvino_genai as genai

    config = genai.SchedulerConfig()
    config.dynamic_split_fuse = False
    config.max_num_seqs = MAX_NUM_SEQS
    config.max_num_batched_tokens = BUDGET
    config.num_kv_blocks = NUM_BLOCKS
    config.enable_prefix_caching = False
    properties: dict[str, Any] = {"INFERENCE_NUM_THREADS": options.threads, "KV_CACHE_PRECISION": options.kv}
    pipeline = genai.ContinuousBatchingPipeline(options.model, config, "CPU", properties)

    def serve(asks: Sequence[Ask]) -> None:
        for id, ask in enumerate(asks):
            greedy = genai.GenerationConfig(max_new_tokens=ask.output, ignore_eos=True, do_sample=False)
            pipeline.add_request(id, openvino.Tensor(np.array([ask.prompt])), greedy)
        while pipeline.has_non_finished_requests():
            pipeline.step()

    return lambda asks: _timed(lambda: serve(asks))


def _llama(options: argparse.Namespace) -> Callable[[Sequence[Ask]], Spent]:
    """A process of its own, which runs one burst for each line that it reads."""
    worker = subprocess.Popen(
        [options.llama, ROOT / "benchmarks" / "live_llama.py", options.gguf, str(options.threads)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )

    def run(asks: Sequence[Ask]) -> Spent:
        assert worker.stdin is not None and worker.stdout is not None
        worker.stdin.write(repr([tuple(ask) for ask in asks]) + "\n")
        worker.stdin.flush()
        wall, cpu = worker.stdout.readline().split()
        return Spent(float(wall), float(cpu))

    return run


def _show(times: dict[str, list[Spent]], num_tokens: int) -> bool:
    """Print medians and ratios; whether the targets were reached."""
    middle = {name: Spent(*map(median, zip(*runs, strict=True))) for name, runs in times.items()}
    print(f"{'median':18} {'wall s':>8} {'CPU s':>8} {'tokens/s':>9} {'wall / ours':>12} {'CPU / ours':>11}")
    ours = middle["ours"]
    for name, spent in middle.items():
        print(f"{name:18} {spent.wall:8.2f} {spent.cpu:8.2f} {num_tokens / spent.wall:9.0f} "
              f"{spent.wall / ours.wall:12.3f} {spent.cpu / ours.cpu:11.3f}")  # fmt: skip
    met = ours.wall <= MOST_OF_GENAI * middle["OpenVINO GenAI"].wall
    if "llama.cpp server" in middle:
        met &= middle["llama.cpp server"].wall >= LEAST_OF_LLAMA * ours.wall
    return met


class Network:
    """What the engine asks for a forward, with the CPU time that it takes."""

    def __init__(self, request: Any) -> None:
        self.set_input_tensor = request.set_input_tensor
        self.seconds: list[float] = []
        self._request = request

    def infer(self, **options: Any) -> Any:
        begin = time.process_time()
        found = self._request.infer(**options)
        self.seconds.append(time.process_time() - begin)
        return found


def _show_python(engine: OpenVino) -> bool:
    """Print what part of a step of decodes is spent outside the network: driver, policy, columns, argmax."""
    engine._request = network = Network(engine._request)
    live = _live(engine, [Ask([100 + i] * 128, 100) for i in range(MAX_NUM_SEQS)])
    steps = []
    while live.batch.num_decoding < MAX_NUM_SEQS:
        live.step()
    network.seconds.clear()
    for _ in range(60):
        begin = time.process_time()
        live.step()
        steps.append(time.process_time() - begin)
    rest = median(whole - inside for whole, inside in zip(steps, network.seconds, strict=True))
    share = rest / median(steps)
    print(f"{MAX_NUM_SEQS} decodes: {1e3 * median(steps):.2f} ms of CPU a step, of which {1e3 * rest:.3f} ms "
          f"({share:.2%}, at most {MOST_PYTHON:.0%}) outside the network")  # fmt: skip
    return share <= MOST_PYTHON


if __name__ == "__main__":
    sys.exit(main())
