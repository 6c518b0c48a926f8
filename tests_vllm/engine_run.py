"""Run loads on vLLM itself, under one scheduler, and print what its clients and its step log saw.

    python -m tests_vllm.engine_run SCHEDULER OPTIONS

Reads one load a line, as JSON, and answers with one line; its requests come in seconds, or in steps,
which makes the steps a matter of the load alone.  SCHEDULER is a class, or "default".  The
model is a tiny Llama with random weights, on one thread.  Seconds are those of the process's CPU clock,
so that other work on the machine matters little; where nobody is there they pass at once, and a poll
of an engine in which nobody may start takes a millisecond, as in a server.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

SETTINGS: Final = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}
os.environ.update(SETTINGS)

from vllm import EngineArgs, SamplingParams  # noqa: E402  reads the settings
from vllm.v1.engine.llm_engine import LLMEngine  # noqa: E402

from batchwright.engines.vllm.step_log import StepLog  # noqa: E402

LIMITS: Final[dict[str, Any]] = {
    "max_num_seqs": 32, "max_num_batched_tokens": 2048, "max_model_len": 1024, "block_size": 32,
    "num_gpu_blocks_override": 801, "enable_prefix_caching": False, "kv_cache_memory_bytes": 1 << 30,
    "gpu_memory_utilization": 0.3,
}  # fmt: skip
MODEL: Final = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256,
    "intermediate_size": 704, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4,
    "head_dim": 64, "vocab_size": 4096, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6,
    "torch_dtype": "float32", "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
    "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False,
}  # fmt: skip
POLL: Final = 0.001  # seconds between two polls of an engine that waits (vLLM's own pause)

Row = dict[str, Any]


class Clock:
    """CPU seconds of this process, and those that were skipped."""

    def __init__(self) -> None:
        self.skipped = -time.process_time()

    def now(self) -> float:
        return time.process_time() + self.skipped

    def skip(self, seconds: float) -> None:
        self.skipped += max(seconds, 0.0)


class Host:
    """vLLM in this process, on `clock`."""

    def __init__(self, scheduler: str, options: Row, log: str) -> None:
        self.clock = Clock()
        os.environ["BATCHWRIGHT_STEP_LOG"] = log
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(json.dumps(MODEL))
            arguments = EngineArgs(
                model=folder,
                skip_tokenizer_init=True,
                load_format="dummy",
                enforce_eager=True,
                seed=0,
                scheduler_cls=None if scheduler == "default" else scheduler,
                additional_config={"batchwright": options},
                enable_logging_iteration_details=True,
                **LIMITS,
            )
            clocked = type("Clocked", (StepLog,), {"clock": staticmethod(self.clock.now)})
            self.engine = LLMEngine.from_engine_args(arguments, stat_loggers=[clocked])
        self.core = self.engine.engine_core.engine_core
        self.core.scheduler.clock = self.clock.now
        self.count = 0

    def run(self, load: list[Row]) -> list[Row]:
        """`load` with first token and end of every request, in seconds."""
        start = self.clock.now()
        coming = sorted(load, key=lambda row: row["arrival"])[::-1]  # the next one is last
        seen: dict[str, Row] = {}
        while coming or self.engine.has_unfinished_requests():
            if coming and not self.engine.has_unfinished_requests():
                self.clock.skip(start + coming[-1]["arrival"] - self.clock.now())
            while coming and start + coming[-1]["arrival"] <= self.clock.now():
                self.add(coming.pop(), start, seen)
            self.step(seen, start)
        return load

    def run_in_steps(self, load: list[Row]) -> list[Row]:
        """The same where `arrival` is a number of steps."""
        coming, seen, number = load[::-1], {}, 0
        while coming or self.engine.has_unfinished_requests():
            if not self.engine.has_unfinished_requests():
                number = max(number, coming[-1]["arrival"])
            while coming and coming[-1]["arrival"] <= number:
                self.add(coming.pop(), 0.0, seen)
            self.step(seen, 0.0)
            number += 1
        return load

    def add(self, row: Row, start: float, seen: dict[str, Row]) -> None:
        self.count += 1
        seen[str(self.count)] = row
        self.engine.add_request(
            str(self.count),
            {"prompt_token_ids": [3 + (self.count * 31 + i * 7) % 4000 for i in range(row["prompt"])]},
            SamplingParams(temperature=0.0, max_tokens=row["output"], ignore_eos=True, detokenize=False),
            arrival_time=start + row["arrival"],
        )

    def step(self, seen: dict[str, Row], start: float) -> None:
        outputs = self.engine.step()
        now = self.clock.now() - start
        if not self.core.scheduler.running:
            self.clock.skip(POLL)
        for output in outputs:
            row = seen[output.request_id]
            row.setdefault("first_token", now)
            if output.finished:
                assert len(output.outputs[0].token_ids) == row["output"]
                row["finished"] = now


def main(scheduler: str, options: str) -> None:
    logging.getLogger("vllm").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        host = Host(scheduler, json.loads(options), folder)
        (file,) = Path(folder).iterdir()
        done = 1  # lines of the log
        for line in sys.stdin:
            load = json.loads(line)
            requests = host.run_in_steps(load["steps"]) if "steps" in load else host.run(load["seconds"])
            host.engine.do_log_stats()  # writes out what the log still holds
            columns, *rows = file.read_text().splitlines()
            steps = [
                dict(zip(columns.split(","), map(float, row.split(",")), strict=True))
                for row in rows[done - 1 :]
            ]
            done += len(steps)
            print(json.dumps({"requests": requests, "steps": steps}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
