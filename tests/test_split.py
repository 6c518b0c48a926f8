"""A model split over GPUs: what each holds, what a scenario's flags mean, and what is exported."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from batchwright.cost import Hosted, Roofline
from batchwright.errors import InputError, LimitError
from batchwright.export.replay import serve_command
from batchwright.hardware import (
    GPUS,
    MODELS,
    Model,
    Serving,
    kv_bytes_per_token,
    memory,
    num_kv_blocks,
    weight_bytes,
)
from batchwright.hardware.split import Split
from batchwright.limits import Limits
from batchwright.policies import Vllm
from batchwright.request import Request
from batchwright.scenario.build import prepare
from batchwright.scenario.keys import Scenario
from batchwright.settled import kv_blocks
from batchwright.simulator import Simulator

H100 = GPUS["H100-SXM"]


def stage_bytes(model: Model, layers: int, tables: int) -> int:
    """Weights of a stage: a model of its layers, without the embeddings, and its own of these."""
    part = dataclasses.replace(model, layers=layers, moe_layers=min(model.moe_layers, layers))
    return part.weight_bytes - (2 - tables) * 2 * model.vocab * model.hidden


@pytest.mark.parametrize("name", ["llama-3.1-8b", "mixtral-8x7b"])
@pytest.mark.parametrize(("pp", "layers"), [(1, 32), (2, 16), (3, 11), (4, 8), (32, 1)])
def test_the_fullest_stage_holds_most_layers_and_the_embedding(name: str, pp: int, layers: int) -> None:
    model = MODELS[name]
    expected = stage_bytes(model, layers, tables=1 if pp > 1 else 2)
    assert weight_bytes(model, pp=pp) == pytest.approx(expected, rel=1e-5)  # the last norm is shared out
    assert kv_bytes_per_token(model, pp=pp) == layers * kv_bytes_per_token(model) // 32


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_tensor_parallel_weights_are_those_of_the_model_divided(tp: int) -> None:
    for model in MODELS.values():
        copied = (tp - 1) * model.copied_bytes  # projections to latents lie whole on every GPU
        assert weight_bytes(model, tp) == (model.weight_bytes + copied) // tp


def test_ranks_copy_all_but_the_experts() -> None:
    model = MODELS["mixtral-8x7b"]
    experts = 2 * model.moe_layers * model.experts * model.expert_parameters
    rest = model.weight_bytes - experts
    assert weight_bytes(model, dp=8) == weight_bytes(model, dp=8, ep=True) == rest + experts // 8
    assert weight_bytes(model, tp=2, dp=4, ep=True) == rest // 2 + experts // 8
    assert weight_bytes(model, dp=3, ep=True) == rest + experts * 3 // 8  # one rank has three of eight
    assert weight_bytes(model, dp=3) == rest + experts // 3


def test_a_pipeline_fits_what_one_gpu_cannot_hold() -> None:
    model = MODELS["llama-3.1-70b"]
    with pytest.raises(LimitError, match=r"llama-3\.1-70b on tp 1 of H100-SXM does not fit"):
        num_kv_blocks(H100, model)
    assert num_kv_blocks(H100, model, pp=4) > 0
    with pytest.raises(LimitError, match=r"on tp 1, pp 2 of L4 does not fit: weights 65\.7 GiB"):
        num_kv_blocks(GPUS["L4"], model, pp=2)


def test_weights_engine_and_blocks_fill_the_fullest_gpu() -> None:
    model = MODELS["mixtral-8x7b"]
    for split in ({"pp": 2}, {"dp": 4, "ep": True}, {"tp": 2, "pp": 2, "dp": 2}):
        blocks = num_kv_blocks(H100, model, **split, gpu_memory_utilization=0.9)  # type: ignore[arg-type]
        tp, pp = int(split.get("tp", 1)), int(split.get("pp", 1))
        block = 16 * kv_bytes_per_token(model, tp, pp)
        used = weight_bytes(model, **split) + (blocks + 1) * block  # type: ignore[arg-type]
        serving = Serving(
            gpu_memory_utilization=0.9, split=Split(tp, pp, int(split.get("dp", 1)), bool(split.get("ep")))
        )
        left = H100.memory_bytes * 0.9 - used - memory(H100, model, serving).engine_bytes
        assert 0 <= left < block


def test_a_pipeline_of_two_has_more_than_twice_the_blocks() -> None:
    one, two = Roofline("H100-SXM", "llama-3.1-8b"), Roofline("H100-SXM", "llama-3.1-8b", pp=2)
    assert two.num_kv_blocks() > 2 * one.num_kv_blocks()
    assert two.kv_bytes_per_token == one.kv_bytes_per_token // 2


# A simulation


@pytest.mark.parametrize(
    "cost",
    [
        Roofline("H100-SXM", "llama-3.1-8b", pp=4),
        Roofline("H100-SXM", "mixtral-8x7b", tp=2, dp=4, ep=True, router_skew=0.5),
    ],
    ids=["stages", "ranks"],
)
def test_a_split_model_skips_quiet_steps_to_the_same_bits(cost: Roofline) -> None:
    limits = Limits(max_num_seqs=32, max_num_batched_tokens=2048)
    ends = []
    for skip in (True, False):
        simulator = Simulator(Vllm(), cost, limits, skip=skip)
        requests = [Request(i, i / 64, 100 + 37 * (i % 11), 40 + 13 * (i % 7)) for i in range(120)]
        simulator.run(requests)
        ends.append([(r.first_token, r.finished) for r in requests])
    assert ends[0] == ends[1]


# Scenarios


def scenario(**keys: Any) -> Scenario:
    return Scenario(workload="chat", requests=20, **keys)


def test_flags_bound_one_rank_and_one_micro_batch() -> None:
    keys = {"model": "qwen3-30b-a3b", "max_num_seqs": 8, "max_num_batched_tokens": 512}
    prepared = prepare(scenario(tp=2, pp=2, dp=4, enable_expert_parallel=True, **keys))
    flags, limits = prepared.flags, prepared.limits
    assert (flags.max_num_seqs, flags.max_num_batched_tokens) == (8, 512)
    assert (limits.max_num_seqs, limits.max_num_batched_tokens) == (32, 4096)
    assert flags.num_kv_blocks is not None and limits.num_kv_blocks == 4 * flags.num_kv_blocks
    assert kv_blocks(limits, prepared.cost) == limits.num_kv_blocks
    assert prepared.cost_name == (
        "hosted roofline of qwen3-30b-a3b on 16 x H100-SXM (tp 2, pp 2, dp 4, expert parallel)"
    )
    said = "a step is a round of 4 data-parallel ranks and 2 pipeline stages: together 4096 tokens, 32 re"
    assert any(note.startswith(said) for note in prepared.notes)


def test_a_split_scenario_written_out_runs_the_same_again() -> None:
    first = prepare(scenario(model="qwen3-30b-a3b", dp=2, enable_expert_parallel=True))
    again = prepare(first.resolved())
    assert again.limits == first.limits and again.cost == first.cost and again.flags == first.flags


def test_every_rank_has_a_host_of_its_own() -> None:
    cost = prepare(scenario(model="qwen3-30b-a3b", pp=2, dp=4)).cost
    assert isinstance(cost, Hosted)
    assert cost.base == pytest.approx(2 * 20e-6) and cost.per_running == pytest.approx(7.5e-6 / 4)


def test_blocks_that_are_given_are_those_of_one_rank() -> None:
    prepared = prepare(scenario(model="qwen3-30b-a3b", dp=2, num_gpu_blocks_override=1001))
    assert prepared.flags.num_kv_blocks == 1000 and prepared.limits.num_kv_blocks == 2000


@pytest.mark.parametrize(
    ("keys", "flag"),
    [
        ({"pp": 2}, "--pp"),
        ({"dp": 0}, "--dp"),
        ({"enable_expert_parallel": True}, "--enable-expert-parallel"),
    ],
)
def test_a_split_beside_a_cost_is_refused(keys: dict[str, Any], flag: str) -> None:
    with pytest.raises(InputError, match=f"--cost is given together with {flag};"):
        prepare(scenario(cost="constant(1)", **keys))


def test_a_split_is_told_to_the_server() -> None:
    words = serve_command(Limits(), Vllm(), "m", 2, 4, 8, True)
    assert "--tensor-parallel-size 2 --pipeline-parallel-size 4 --data-parallel-size 8" in words
    assert "--enable-expert-parallel" in words
    plain = serve_command(Limits(), Vllm(), "m", 2)
    assert "pipeline" not in plain and "data" not in plain and "expert" not in plain
