"""CPU microseconds of one step of our live driver while 256 requests decode; the engine is a stub.

    python tests_vllm/our_step.py

prints a number, and whether the Batchwright of this Python is plain or compiled.  A step is: policy,
block tables, columns for the engine, append, stop test.
"""

from __future__ import annotations

import time

from batchwright import batch
from batchwright.engines.engine import Capacity
from batchwright.engines.live import Live
from batchwright.engines.sequence import Sequence
from batchwright.engines.work import Work
from batchwright.limits import Limits
from batchwright.policies import Vllm
from batchwright.request import Request

RUNNING, PROMPT, OUTPUT = 256, 64, 1500
WARM_UP, STEPS = 100, 300  # all decode in each of them
BLOCK_SIZE, BLOCKS = 16, 30_000


class Stub:
    """An engine that computes nothing, in no time."""

    capacity = Capacity(
        block_size=BLOCK_SIZE,
        num_kv_blocks=BLOCKS,
        max_num_seqs=None,
        max_model_len=8192,
        shares_prefixes=True,
    )

    def now(self) -> float:
        return 0.0

    def sleep(self, until: float) -> None: ...

    def run(self, work: Work) -> list[int]:
        return [7] * len(work.sampled)


def main() -> None:
    limits = Limits(max_num_seqs=RUNNING, max_num_batched_tokens=2048, num_kv_blocks=BLOCKS)
    live = Live(Vllm(), Stub(), limits)
    for i in range(RUNNING):
        request = Request(i, 0.0, PROMPT, OUTPUT)
        live.add(Sequence(request, [100 + i] * PROMPT, stop_ids=frozenset({1, 2})))
    for _ in range(WARM_UP):
        live.step()
    assert live.batch.num_decoding == RUNNING
    begin = time.process_time()
    for _ in range(STEPS):
        live.step()
    seconds = time.process_time() - begin
    assert live.batch.num_decoding == RUNNING
    print(seconds / STEPS * 1e6, "plain" if batch.__file__.endswith(".py") else "compiled")


if __name__ == "__main__":
    main()
