"""What deciding and bookkeeping cost per step with 256 decoding: vLLM's scheduler against ours.

    python -m tests_vllm.overhead COMPILED_PYTHON

CPU time, synchronous, prefix caching on, no model on either side; vLLM's is `schedule()` and
`update_from_output()`.  Best of the repeats, which are interleaved.  Exits 1 if the compiled
driver is not 30 times cheaper.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from batchwright.engines.vllm.bare_scheduler import bare_scheduler, outputs_of, request_of
from batchwright.engines.vllm.versions import vllm_version
from tests_vllm.our_step import BLOCK_SIZE, BLOCKS, OUTPUT, PROMPT, RUNNING, STEPS, WARM_UP

REPEATS: Final = 5
LEAST_GAIN: Final = 30
CONFIG: Final[dict[str, Any]] = {
    "max_num_seqs": RUNNING, "max_num_batched_tokens": 2048, "max_model_len": 8192,
    "block_size": BLOCK_SIZE, "num_blocks": BLOCKS + 1, "enable_chunked_prefill": True,
    "long_prefill_token_threshold": 0, "enable_prefix_caching": True, "policy": "fcfs",
}  # fmt: skip


def theirs() -> float:
    """Microseconds of a step of vLLM's scheduler."""
    scheduler, hasher = bare_scheduler(CONFIG)
    for i in range(RUNNING):
        row = {"id": f"r{i:03d}", "prompt_len": PROMPT, "output_len": OUTPUT}
        scheduler.add_request(request_of(i, row, hasher, 0.0))
    seconds = 0.0
    for number in range(WARM_UP + STEPS):
        begin = time.process_time()
        planned = scheduler.schedule()
        middle = time.process_time()
        outputs = outputs_of(planned, scheduler)  # the engine's part
        resumed = time.process_time()
        scheduler.update_from_output(planned, outputs)
        if number >= WARM_UP:
            assert len(planned.num_scheduled_tokens) == RUNNING
            seconds += time.process_time() - resumed + middle - begin
    return seconds / STEPS * 1e6


def ours(python: str) -> tuple[str, float]:
    """Plain or compiled, and microseconds of a step of our driver, as installed for `python`."""
    script = Path(__file__).with_name("our_step.py")
    done = subprocess.run([python, "-I", str(script)], stdout=subprocess.PIPE, text=True, check=True)
    number, mode = done.stdout.split()
    return mode, float(number)


def main(compiled: str) -> int:
    logging.getLogger("vllm").setLevel(logging.ERROR)  # it warns of every unusual limit
    found: dict[str, list[float]] = {"vLLM": [], "plain": [], "compiled": []}
    for _ in range(REPEATS):
        found["vLLM"].append(theirs())
        for python in (sys.executable, compiled):
            mode, number = ours(python)
            found[mode].append(number)
    best = {name: min(values) for name, values in found.items()}
    print(
        f"CPU time per step with {RUNNING} decoding, without a model; best of {REPEATS} runs of {STEPS} steps"
    )
    print(f"  vLLM {vllm_version()}, schedule() and update_from_output()   {best['vLLM']:7.0f} us")
    for mode in ("plain", "compiled"):
        gain = best["vLLM"] / best[mode]
        print(f"  Batchwright's live driver, {mode:<28} {best[mode]:7.1f} us   {gain:.0f} times cheaper")
    return 0 if best["vLLM"] / best["compiled"] >= LEAST_GAIN else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
