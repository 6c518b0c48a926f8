"""A measured run of vLLM on a GPU, and what is predicted of it from the layer times of the same card.

    measured    TTFT = first_token_ts - queued_ts       E2E = last_token_ts - queued_ts
    predicted   the same from arrival, at `arrival_time`, with the lengths and prefix hashes of the workload
    TPOT        (last token - first token) / (output - 1)

The engine takes in a request between two steps, and calls it queued then, so the measured TTFT lacks up to
one step that the predicted one has.  A step is planned when the one before it begins (`ahead`).  Nothing
of a measured time goes into a prediction.

Source: LLMServingSim 2 (casys-kaist, MIT), bench and profiles, with vLLM 0.19.0.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from batchwright.accuracy.published_files import as_published
from batchwright.accuracy.study import Row
from batchwright.cost import CostModel, Layers
from batchwright.errors import InputError
from batchwright.layer_profile import GRAPHS, layers
from batchwright.limits import Limits
from batchwright.metrics import Numbers
from batchwright.policies import Vllm
from batchwright.request import Request
from batchwright.simulator import Simulator

MODEL: Final = "Llama-3.1-8B"
WORKLOAD: Final = "sharegpt-llama-3.1-8b-300-sps10.jsonl"
PEER: Final = "LLMServingSim 2"
SOURCE: Final = "LLMServingSim 2 (casys-kaist, MIT): bench and profiles of vLLM 0.19.0"
METRICS: Final = ("TTFT", "TPOT", "E2E")
BLOCK_SIZE: Final = 16
MILLISECONDS: Final = 1e-3

Times = dict[str, Numbers]  # by metric, seconds of every request


@dataclass(frozen=True, eq=False)
class GpuRun:
    """One measured run.  `data`: the folder of all measurements; `card`: as its folder is called."""

    data: Path
    card: str

    @property
    def root(self) -> Path:
        """Where the runs on GPUs are."""
        return self.data / "vllm_gpu"

    @property
    def folder(self) -> Path:
        """Where this run is."""
        return self.root / self.card / MODEL

    @cached_property
    def meta(self) -> dict[str, Any]:
        """How the engine was started."""
        path = self.folder / "meta.json"
        with as_published(path):
            found: dict[str, Any] = json.loads(_text(path))
        return found

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """What was measured of each request, in order of arrival."""
        return _lines(self.folder / "requests.jsonl")

    @cached_property
    def measured(self) -> Times:
        """Seconds of each request."""
        column = {
            key: np.array([row[key] for row in self.rows]) for key in self.rows[0] if key != "request_id"
        }
        decodes = column["last_token_ts"] - column["first_token_ts"]
        return {
            "TTFT": column["first_token_ts"] - column["queued_ts"],
            "TPOT": decodes / (column["output_toks"] - 1),
            "E2E": column["last_token_ts"] - column["queued_ts"],
        }

    def cost(self, step: float = 0.0) -> CostModel:
        """The layer times of the card.  `step`: seconds beside, in every step."""
        return replace(self.layers, step_seconds=step)

    @cached_property
    def layers(self) -> Layers:
        """The same, with nothing beside; graphs up to the size that vLLM captures by default."""
        most = min(2 * self.meta["engine_kwargs"]["max_num_seqs"], GRAPHS)
        folder = self.root / "profiles" / self.card
        return layers(folder, "llama-3.1-8b", max_cudagraph_capture_size=most)

    def requests(self) -> list[Request]:
        """The requests of the run: lengths and prefix hashes of its workload, arrivals as measured."""
        numbers: dict[str, int] = {}
        found, first = [], self.rows[0]["arrival_time"]
        for id, (row, asked) in enumerate(zip(self.rows, _lines(self.root / WORKLOAD), strict=True)):
            lengths = (asked["input_toks"], asked["output_toks"])
            if lengths != (row["input_toks"], row["output_toks"]):
                raise InputError(
                    f"{self.folder}: request {id} is not that of {WORKLOAD}; give the right workload"
                )
            hashes = asked["prefix_block_hashes"][: lengths[0] // BLOCK_SIZE]
            prefix = array("q", [numbers.setdefault(name, len(numbers)) for name in hashes])
            found.append(Request(id, row["arrival_time"] - first, *lengths, prefix=prefix))
        return found

    def limits(self) -> Limits:
        """What the engine was started with; memory is not modelled where its blocks are not known."""
        given, blocks = self.meta["engine_kwargs"], self.meta.get("kv_cache", {}).get("num_gpu_blocks")
        return Limits(
            max_num_seqs=given["max_num_seqs"],
            max_num_batched_tokens=given["max_num_batched_tokens"],
            max_model_len=given["max_model_len"] if blocks else None,
            num_kv_blocks=blocks - 1 if blocks else None,
            block_size=BLOCK_SIZE,
        )

    def predict(self, step: float = 0.0) -> tuple[Times, int]:
        """Seconds of each request, and preemptions, under `vllm@0.19`, asynchronous."""
        requests = self.requests()
        Simulator(Vllm(version="0.19"), self.cost(step), self.limits(), ahead=True).run(requests)
        return times_of(requests), sum(r.preemptions for r in requests)

    @cached_property
    def published(self) -> Mapping[str, float]:
        """What the other simulator predicted, seconds, by name of the row: `TTFT Mean`."""
        found = {}
        for line in _text(self.folder / "sim_vs_vllm_summary.txt").splitlines():
            words = line.replace("Latency", "E2E").split()
            if len(words) == 5 and words[0] in METRICS:
                found[f"{words[0]} {words[1]}"] = float(words[3]) * MILLISECONDS
        return found


def times_of(requests: list[Request]) -> Times:
    """Seconds of requests that a simulator has served."""
    arrival, first, end, output = (
        np.array(column)
        for column in zip(
            *((r.arrival, r.first_token, r.finished, r.true_output) for r in requests), strict=True
        )
    )
    return {"TTFT": first - arrival, "TPOT": (end - first) / (output - 1), "E2E": end - arrival}


def mean_row(run: GpuRun, predicted: Times, metric: str, bound: float, part: slice = slice(None)) -> Row:
    """The mean of a metric; `part`: of these requests only, of which nobody else says anything."""
    others = {PEER: run.published[f"{metric} Mean"]} if part == slice(None) else {}
    return Row(
        what=f"mean {metric}",
        unit="s",
        predicted=float(predicted[metric][part].mean()),
        measured=float(run.measured[metric][part].mean()),
        others=others,
        bound=bound,
    )


def percentile_row(run: GpuRun, predicted: Times, metric: str, percent: int, bound: float) -> Row:
    """A percentile of a metric, over all requests."""
    name = "Median" if percent == 50 else f"P{percent}"
    return Row(
        what=f"P{percent} {metric}",
        unit="s",
        predicted=float(np.percentile(predicted[metric], percent)),
        measured=float(np.percentile(run.measured[metric], percent)),
        others={PEER: run.published[f"{metric} {name}"]},
        bound=bound,
    )


def _text(path: Path) -> str:
    with as_published(path):
        return path.read_text(encoding="utf-8")


def _lines(path: Path) -> list[dict[str, Any]]:
    with as_published(path):
        return [json.loads(line) for line in _text(path).splitlines() if line.strip()]
