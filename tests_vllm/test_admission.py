"""Our schedulers inside vLLM do what the simulation of them does, step for step."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.request import RequestStatus

from batchwright.conformance import VLLM_FLAGS, limits_of, requests, rows
from batchwright.cost import Constant
from batchwright.engines.vllm import Admission, Dynamic, Static
from batchwright.engines.vllm.bare_scheduler import bare_scheduler, request_of
from batchwright.engines.vllm.record import record
from batchwright.engines.vllm.workloads import workload
from batchwright.errors import InputError, LimitError, PolicyError
from batchwright.policies import Vllm
from batchwright.policies.admission import CappedVllm, DynamicAdmission, Rule, StaticAdmission
from batchwright.simulator import Simulator

Row = dict[str, Any]


@dataclass
class Trickle:
    """Lets in two requests at a time, and never lets more than five run."""

    def begin(self, max_num_seqs: int) -> Rule:
        return lambda view: min(2, max(0, 5 - view.num_running))


class Trickling(Admission):
    settings = Trickle


def options(kind: str, random: Random, seats: int) -> Row:
    size = random.randint(1, seats)
    if kind == "static":
        return {"batch_size": size, "idle": random.choice([0, 1, 7, 60])}
    preferred = [p for p in (1, 2, 5) if p <= size and random.random() < 0.5]
    return {"max_batch_size": size, "window": random.choice([0, 1, 7, 60]), "preferred_sizes": preferred}


ROOMY: Row = {
    "max_num_seqs": 8, "max_num_batched_tokens": 512, "max_model_len": 512, "block_size": 16,
    "num_blocks": 200, "enable_chunked_prefill": True, "long_prefill_token_threshold": 0,
    "enable_prefix_caching": False, "policy": "fcfs",
}  # fmt: skip
KINDS = {
    "static": (Static, StaticAdmission),
    "dynamic": (Dynamic, DynamicAdmission),
    "own": (Trickling, Trickle),
}


def capped_load(seed: int, asynchronous: bool) -> Row:
    """First come, first served: a tie of two arrivals would be broken by their place, not their time."""
    load = workload(seed, asynchronous)
    load["config"]["policy"] = "fcfs"
    return load


def simulated(load: Row, admission: Any) -> list[Row]:
    config = load["config"]
    flags = {name: config[name] for name in VLLM_FLAGS if config.get(name) is not None}
    policy = CappedVllm(admission, Vllm(async_scheduling=config["async_scheduling"], **flags))
    simulator = Simulator(policy, Constant(1.0, empty=1.0), limits_of(config))
    simulator.run(requests(load))
    return rows(load, simulator)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["synchronous", "asynchronous"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(30))
def test_every_step_in_vllm_is_the_simulated_one(kind: str, asynchronous: bool, seed: int) -> None:
    load = capped_load(seed, asynchronous)
    scheduler, settings = KINDS[kind]
    seats = load["config"].get("max_num_active_seqs") or load["config"]["max_num_seqs"]
    chosen = {} if kind == "own" else options(kind, Random(seed), seats)
    theirs = [comparable(step) for step in record(load, scheduler, chosen)["steps"]]
    ours = [comparable(step) for step in simulated(load, settings(**chosen))]
    for number, (our, their) in enumerate(zip(ours, theirs, strict=False)):
        assert our == their, number
    assert len(ours) == len(theirs)


def comparable(step: Row) -> Row:
    """Without what a replay does not know of a call that only sees ends: how many wait for the rule."""
    left_out = {"step"} if step["scheduled"] else {"step", "waiting"}
    return {key: value for key, value in step.items() if key not in left_out} | {
        "scheduled": list(dict(step["scheduled"]).items())
    }


def test_a_scheduler_is_asynchronous_if_the_engine_is() -> None:
    load = workload(0, asynchronous=True)
    scheduler, _ = bare_scheduler(load["config"], Static)
    assert isinstance(scheduler, AsyncScheduler)
    scheduler, _ = bare_scheduler(load["config"] | {"async_scheduling": False}, Static)
    assert not isinstance(scheduler, AsyncScheduler)


def test_a_request_whose_client_goes_while_it_waits_holds_nobody_up() -> None:
    scheduler, hasher = bare_scheduler(ROOMY, Static, {"batch_size": 3})
    scheduler.clock = lambda: 0.0
    for i in range(3):
        if i == 2:
            scheduler.finish_requests("r001", RequestStatus.FINISHED_ABORTED)
        scheduler.add_request(
            request_of(i, {"id": f"r{i:03d}", "prompt_len": 2, "output_len": 1}, hasher, 0.0)
        )
    assert not scheduler.schedule().num_scheduled_tokens, "two of three are there"
    scheduler.add_request(request_of(3, {"id": "r003", "prompt_len": 2, "output_len": 1}, hasher, 0.0))
    assert list(scheduler.schedule().num_scheduled_tokens) == ["r000", "r002", "r003"]


def test_settings_that_are_wrong_stop_vllm_at_its_start() -> None:
    for given, error in (
        ({"size": 3}, InputError),
        ({"batch_size": 0}, InputError),
        ({"batch_size": 9}, LimitError),
        (["batch_size"], InputError),
    ):
        with pytest.raises(error):
            bare_scheduler(ROOMY, Static, given)


def test_a_rule_that_answers_no_count_is_an_error() -> None:
    class Wrong(Admission):
        settings = staticmethod(lambda: SimpleNamespace(begin=lambda seats: lambda view: -1))

    scheduler, hasher = bare_scheduler(ROOMY, Wrong)
    scheduler.add_request(request_of(0, {"id": "r000", "prompt_len": 2, "output_len": 1}, hasher, 0.0))
    with pytest.raises(PolicyError):
        scheduler.schedule()
