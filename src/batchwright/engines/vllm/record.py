"""Record random schedules of the vLLM that is installed here.

    python -m batchwright.engines.vllm.record DIRECTORY
    python -m batchwright.conformance DIRECTORY/*.json

The first command drives vLLM's scheduler without a model, on random workloads, every second one
under asynchronous scheduling, and writes one recording per workload; the second one replays them
through our `vllm` policy.  So you learn whether the policy is that of your own version of vLLM.

A call of the scheduler is one step.  Under asynchronous scheduling two steps are in flight, as
in vLLM's engine: a step is planned before the tokens of the one before are known.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from argparse import ArgumentParser
from collections import deque
from pathlib import Path
from typing import Any, Final

from batchwright.engines.vllm.bare_scheduler import bare_scheduler, outputs_of, request_of
from batchwright.engines.vllm.versions import vllm_version
from batchwright.engines.vllm.workloads import workload
from batchwright.errors import BatchwrightError, InputError

MOST_STEPS: Final = 100_000

Row = dict[str, Any]


def record(load: Row, kind: Any = None, options: Row | None = None) -> Row:
    """`load` with the steps of vLLM's scheduler, or of another class, `kind`, with its `options`.

    Raises InputError if they do not end.
    """
    name = "AsyncScheduler, two steps in flight" if load["config"]["async_scheduling"] else "Scheduler"
    steps = _Recorder(load, kind, options).run()
    return {**load, "engine": f"vllm {vllm_version()}, {name}", "steps": steps}


class _Recorder:
    def __init__(self, load: Row, kind: Any, options: Row | None) -> None:
        config = load["config"]
        self.load = load
        self.number = 0  # of the step
        self.is_asynchronous: bool = config["async_scheduling"]
        self.apart = 1e-6 if config["policy"] == "priority" else 0.0  # then no two come at once
        self.scheduler, self.hasher = bare_scheduler(config, kind, options)
        self.scheduler.clock = lambda: self.number
        self.pool = self.scheduler.kv_cache_manager.block_pool
        self.coming = deque(enumerate(load["requests"]))
        self.in_flight: deque[Any] = deque()
        self.held: set[str] = set()  # ids of the requests whose end has not been seen
        self.ended: list[str] = []  # of those whose end was, since the last call
        self.steps: list[Row] = []

    def run(self) -> list[Row]:
        while self.coming or self.in_flight or self.scheduler.has_requests():
            if self.coming and not self.held and not self.in_flight:
                self.number = max(self.number, self.coming[0][1]["arrival_step"])
            self.arrive()
            if self.scheduler.has_requests():
                self.call()
            while len(self.in_flight) > self.is_asynchronous or self.is_draining:
                self.see(*self.in_flight.popleft())
            self.number += 1
            if self.number > MOST_STEPS:
                raise InputError(f"{self.load['name']}: no end after {MOST_STEPS} steps; take another seed")
        return self.steps

    @property
    def is_draining(self) -> bool:
        """Is nothing left to plan while a step is in flight?"""
        return bool(self.in_flight) and not self.scheduler.has_requests()

    def arrive(self) -> None:
        while self.coming and self.coming[0][1]["arrival_step"] <= self.number:
            index, row = self.coming.popleft()
            arrival = row["arrival_step"] + index * self.apart
            self.scheduler.add_request(request_of(index, row, self.hasher, arrival))
            self.held.add(row["id"])

    def call(self) -> None:
        """Let the scheduler plan a step."""
        ended, self.ended = self.ended, []
        self.scheduler.preempted.clear()
        planned = self.scheduler.schedule()
        row = {
            "step": self.number,
            "scheduled": dict(planned.num_scheduled_tokens),
            "admitted": _admitted(planned),
            "preempted": list(self.scheduler.preempted),
            "free_blocks_sched": self.pool.get_num_free_blocks(),
        }
        if self.is_asynchronous:
            row |= {"finished_before": ended, **self.counts()}
        if row["scheduled"] or row["preempted"] or ended or self.is_computing:
            self.steps.append(row)  # else nobody runs, and nobody may join yet
        self.in_flight.append((planned, outputs_of(planned, self.scheduler), row))

    @property
    def is_computing(self) -> bool:
        return any(row["scheduled"] for _, _, row in self.in_flight)

    def see(self, planned: Any, outputs: Any, row: Row) -> None:
        """Give the scheduler the tokens of a step."""
        self.scheduler.update_from_output(planned, outputs)
        gone = [id for id in row["scheduled"] if id in self.held and id not in self.scheduler.requests]
        self.held.difference_update(gone)
        if self.is_asynchronous:
            self.ended += gone
        else:
            row |= {"finished": gone, "free_blocks": self.pool.get_num_free_blocks(), **self.counts()}

    def counts(self) -> Row:
        running, waiting = self.scheduler.get_request_counts()
        return {"running": running, "waiting": waiting}


def _admitted(planned: Any) -> dict[str, int]:
    """Ids of the requests that got a seat, with the tokens that the prefix cache had of them."""
    cached = planned.scheduled_cached_reqs
    found = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    found = {id: tokens for id, tokens in found.items() if id in cached.resumed_req_ids}
    found |= {new.req_id: new.num_computed_tokens for new in planned.scheduled_new_reqs}
    return {id: found[id] for id in planned.num_scheduled_tokens if id in found}


def write(recording: Row, file: Path) -> None:
    """One line per request and per step."""
    parts = {name: recording[name] for name in recording if name not in ("requests", "steps")}
    head = ", ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in parts.items())
    lists = (
        f'"{name}": [\n' + ",\n".join(map(json.dumps, recording[name])) + "\n]"
        for name in ("requests", "steps")
    )
    file.write_text(f"{{{head}, {', '.join(lists)}}}\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Write the recordings; 2 on bad input."""
    parser = ArgumentParser(
        prog="python -m batchwright.engines.vllm.record", description="Record vLLM's schedules."
    )
    parser.add_argument("directory", type=Path, help="where to write; made if it is not there")
    parser.add_argument("--count", type=int, default=200, help="workloads, every second one asynchronous")
    parser.add_argument("--seed", type=int, default=0, help="of the first workload; the next ones follow")
    chosen = parser.parse_args(arguments)
    logging.getLogger("vllm").setLevel(logging.ERROR)  # it warns of every unusual limit
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    try:
        found = vllm_version()
        chosen.directory.mkdir(parents=True, exist_ok=True)
        for seed in range(chosen.seed, chosen.seed + chosen.count):
            write(record(workload(seed, asynchronous=seed % 2 == 1)), chosen.directory / f"{seed:06d}.json")
    except OSError as error:
        print(
            f"{chosen.directory}: cannot be written ({error.strerror}); give another place", file=sys.stderr
        )
        return 2
    except BatchwrightError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{chosen.count} recordings of vLLM {found} in {chosen.directory}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
