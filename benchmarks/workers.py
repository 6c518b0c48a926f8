"""What is timed: each worker runs one workload through one simulator, in a process of its own.

    python -m benchmarks.workers '{"worker": "ours", "load": "W1", "num_requests": 10000}'

prints one line of JSON: CPU seconds of the run alone, peak memory of the process, and the
end of the simulated time, which tells whether two simulators did the same work.

All run 256 requests at once, 512 tokens a step, 28,000 blocks of 16 tokens, and a step of
5 ms + 20 us a prompt token + 10 us a decode + 40 ns a token of context.
"""

from __future__ import annotations

import gc
import json
import platform
import resource
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.loads import prefix_keys, rows

MAX_NUM_SEQS, MAX_NUM_BATCHED_TOKENS, NUM_BLOCKS, BLOCK_SIZE = 256, 512, 28_000, 16
MAX_MODEL_LEN = 4096  # which orca reserves in every slot
BASE, PREFILL, DECODE, CONTEXT = 5e-3, 2e-5, 1e-5, 4e-8

Job = dict[str, Any]
Timed = tuple[float, float, str]  # CPU seconds, end of the simulated time, file of the code


def timed(run: Callable[[], object]) -> float:
    """CPU seconds of `run()`, with no garbage of the set-up left to collect."""
    gc.collect()
    began = time.process_time()
    run()
    return time.process_time() - began


def ours(job: Job) -> Timed:
    """Batchwright, with its log.  `caching`: off, unique (no prompt is shared) or shared."""
    import batchwright as bw
    import batchwright.batch

    limits = bw.Limits(
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS,
        max_model_len=MAX_MODEL_LEN,
        num_kv_blocks=NUM_BLOCKS,
        block_size=BLOCK_SIZE,
        enable_prefix_caching=job["caching"] != "off",
    )
    cost = bw.Linear(base=BASE, prefill=PREFILL, decode=DECODE, context=CONTEXT)
    simulator = bw.Simulator(bw.policy(job["policy"]), cost, limits, skip=job["skip"])
    requests = _requests(bw.Request, job)
    load = requests if job["lazy"] else list(requests)
    seconds = timed(lambda: simulator.run(load))
    assert simulator.log is not None
    return seconds, float(simulator.now), str(batchwright.batch.__file__)


def _requests(request: Callable[..., Any], job: Job) -> Iterator[Any]:
    shared = job["caching"] == "shared"
    for id, arrival, prompt, output in rows(job["load"], job["num_requests"], job["trace"]):
        if shared:
            yield request(id, arrival, prompt, output, prefix=array("q", prefix_keys(id, prompt)))
        else:
            yield request(id, arrival, prompt, output)


def first(job: Job) -> Timed:
    """The first sketch: no prefix cache, no log."""
    from first.batch import Batch, Request
    from first.policies import chunked_prefill
    from first.simulator import Simulator, h100_8b

    requests = [Request(*row) for row in rows(job["load"], job["num_requests"], job["trace"])]
    batch = Batch(NUM_BLOCKS, BLOCK_SIZE, MAX_NUM_BATCHED_TOKENS, MAX_NUM_SEQS)
    simulator = Simulator(requests, batch, chunked_prefill, h100_8b)
    simulator.skip = job["skip"]
    return timed(simulator.run), batch.now, str(sys.modules["first.batch"].__file__)


def sched_sim(job: Job) -> Timed:
    """sched-sim's chunked scheduler, which has no limit on running requests, at the same cost."""
    from sched_sim.core.event_engine import Simulator
    from sched_sim.core.request import Request
    from sched_sim.hardware.profile import HardwareProfile
    from sched_sim.memory.block_manager import BlockManager
    from sched_sim.memory.preemption import PreemptionHandler
    from sched_sim.schedulers.chunked import ChunkedPrefillScheduler

    hardware = HardwareProfile()
    cost = LinearLatency()
    blocks = BlockManager(hardware, block_size=BLOCK_SIZE)
    blocks.total_gpu_blocks = NUM_BLOCKS
    blocks.free_gpu_blocks = list(range(NUM_BLOCKS))
    scheduler = ChunkedPrefillScheduler(
        blocks, cost, PreemptionHandler(blocks, cost), MAX_NUM_SEQS, MAX_NUM_BATCHED_TOKENS
    )
    simulator = Simulator(hardware, scheduler, block_size=BLOCK_SIZE)
    simulator.submit_workload([
        Request(request_id=str(id), arrived_at=arrival, prompt_tokens=prompt, output_tokens=output)
        for id, arrival, prompt, output in rows(job["load"], job["num_requests"], job["trace"])
    ])  # fmt: skip
    return timed(simulator.run), simulator.current_time, str(sys.modules["sched_sim"].__file__)


def reference(job: Job) -> Timed:
    """The per-request loop that the tests compare the simulator with."""
    from tests.reference import linear
    from tests.reference import timed as replay

    load = [
        {"id": str(id), "arrival": arrival, "prompt_len": prompt, "output_len": output}
        for id, arrival, prompt, output in rows(job["load"], job["num_requests"], job["trace"])
    ]
    config = {
        "block_size": BLOCK_SIZE,
        "enable_chunked_prefill": True,
        "enable_prefix_caching": job["caching"] != "off",
        "long_prefill_token_threshold": 0,
        "max_model_len": NUM_BLOCKS * BLOCK_SIZE,
        "max_num_batched_tokens": MAX_NUM_BATCHED_TOKENS,
        "max_num_seqs": MAX_NUM_SEQS,
        "num_blocks": NUM_BLOCKS + 1,  # vLLM's null block
        "policy": "fcfs",
    }
    cost = linear(step=BASE, prefill=PREFILL, decode=DECODE, context=CONTEXT, attention=0.0)
    ends: list[float] = []
    workload = {"config": config, "requests": load}
    seconds = timed(lambda: ends.extend(times["finished"] for times in replay(workload, cost).values()))
    return seconds, max(ends), str(sys.modules["tests.reference"].__file__)


class LinearLatency:
    """The linear cost under the names that sched-sim calls."""

    launch_overhead_s = BASE

    def compute_prefill_step_time(self, tokens: int) -> float:
        return BASE + PREFILL * tokens

    def compute_decode_step_time(self, decodes: int, context: int) -> float:
        return BASE + DECODE * decodes + CONTEXT * context

    def compute_mixed_step_time(self, tokens: int, decodes: int, context: int) -> float:
        return BASE + PREFILL * tokens + DECODE * decodes + CONTEXT * context


WORKERS = {"ours": ours, "first": first, "sched-sim": sched_sim, "reference": reference}


def peak_megabytes() -> float:
    """Greatest resident memory of this process."""
    unit = 1 if platform.system() == "Darwin" else 1024  # getrusage: bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def main() -> None:
    job = json.loads(sys.argv[1])
    seconds, end, file = WORKERS[job["worker"]](job)
    print(json.dumps({"seconds": seconds, "end": end, "megabytes": peak_megabytes(), "file": file}))


if __name__ == "__main__":
    main()
