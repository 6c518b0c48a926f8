"""A simulated run as the files that client tools write of one, each in the tool's own conventions."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import batchwright as bw
from batchwright.run import Run
from batchwright.run.ticks import token_times
from batchwright.workload import Workload

RATE = 8.0  # requests/s
COUNT = 60
MONOTONIC = 4321.5  # what the clock of a client says at the first arrival
EPOCH = 1_800_000_000.0


@cache
def run_of(seed: int) -> Run:
    """Poisson arrivals on an idle enough server."""
    random = Random(seed)
    prompts = [random.randint(5, 300) for _ in range(COUNT)]
    outputs = [random.choice([1, 2, 7, random.randint(20, 80)]) for _ in range(COUNT)]
    arrivals = np.cumsum([random.expovariate(RATE) for _ in range(COUNT)])
    load = Workload.from_columns((arrivals - arrivals[0]).tolist(), prompts, outputs)
    cost = bw.Linear(base=0.012, prefill=1e-4, decode=5e-4)
    return bw.compare(load, cost, policies={"v": bw.vllm()})["v"]


@dataclass
class Client:
    """What a client saw: seconds from the first arrival, a list of token times per request."""

    sent: list[float]
    prompt: list[int]
    tokens: list[list[float]]

    @classmethod
    def of(cls, run: Run) -> Client:
        columns = run.requests()
        tokens = [times.tolist() for times in token_times(run)]
        return cls(columns["arrival_s"].tolist(), columns["prompt_tokens"].tolist(), tokens)

    @property
    def output(self) -> list[int]:
        return [len(times) for times in self.tokens]

    @property
    def ttft(self) -> list[float]:
        return [times[0] - sent for times, sent in zip(self.tokens, self.sent, strict=True)]

    @property
    def e2e(self) -> list[float]:
        return [times[-1] - sent for times, sent in zip(self.tokens, self.sent, strict=True)]

    @property
    def gaps(self) -> list[list[float]]:
        return [np.diff(times).tolist() for times in self.tokens]

    @property
    def tpot(self) -> list[float]:
        """0 of one token, as some tools have it."""
        return [float(np.mean(gaps)) if gaps else 0.0 for gaps in self.gaps]

    @property
    def duration(self) -> float:
        return max(times[-1] for times in self.tokens) - min(self.sent)


def statistics(name: str, seconds: list[float]) -> dict[str, float]:
    values = np.array(seconds) * 1000
    found = {"mean": values.mean(), "median": np.median(values)}
    found |= {f"p{share}": np.percentile(values, share) for share in (90, 99)}
    return {f"{key}_{name}_ms": float(value) for key, value in found.items()}


def _sums(client: Client, e2e: str) -> dict[str, Any]:
    some = [tpot for tpot, output in zip(client.tpot, client.output, strict=True) if output > 1]
    prompt, output, duration = sum(client.prompt), sum(client.output), client.duration
    return {
        "duration": duration,
        "completed": len(client.sent),
        "total_input_tokens": prompt,
        "total_output_tokens": output,
        "request_throughput": len(client.sent) / duration,
        "output_throughput": output / duration,
        **statistics("ttft", client.ttft),
        **statistics("tpot", some),
        **statistics("itl", [gap for gaps in client.gaps for gap in gaps]),
        **statistics(e2e, client.e2e),
        "max_concurrency": None,
        "input_lens": client.prompt,
        "output_lens": client.output,
        "ttfts": client.ttft,
        "itls": client.gaps,
        "errors": [""] * len(client.sent),
    }


def vllm(client: Client) -> Any:
    """As vLLM 0.32."""
    return {
        **_sums(client, "e2el"),
        "backend": "openai",
        "model_id": "some/model",
        "num_prompts": len(client.sent),
        "failed": 0,
        "request_rate": RATE,
        "burstiness": 1.0,
        "total_token_throughput": (sum(client.prompt) + sum(client.output)) / client.duration,
        "start_times": [MONOTONIC + sent for sent in client.sent],
        "latencies": client.e2e,
        "queue_times": [1e-5] * len(client.sent),
    }


def vllm_before(client: Client) -> Any:
    """As vLLM before 0.32: E2E is not told of each request."""
    found = vllm(client)
    return {key: value for key, value in found.items() if key not in ("latencies", "queue_times")}


def sglang(client: Client) -> Any:
    total = sum(client.prompt) + sum(client.output)
    return {
        **_sums(client, "e2e_latency"),
        "backend": "sglang-oai",
        "request_rate": RATE,
        "total_output_tokens_retokenized": sum(client.output),
        "total_throughput": total / client.duration,
        "concurrency": sum(client.e2e) / client.duration,
    }


def guidellm(client: Client) -> Any:
    return {
        "metadata": {"guidellm_version": "0.8.1"},
        "benchmarks": [
            {
                "config": {"strategy": {"type_": "poisson", "rate": RATE, "max_concurrency": None}},
                "metrics": {},
                "requests": {
                    "successful": [_guidellm(client, i) for i in range(len(client.sent))],
                    "errored": [],
                    "incomplete": [],
                },
            }
        ],
    }


def _guidellm(client: Client, i: int) -> dict[str, Any]:
    times, output = client.tokens[i], client.output[i]
    start = EPOCH + client.sent[i]
    return {
        "type_": "generative_request_stats",
        "prompt_tokens": client.prompt[i],
        "output_tokens": output,
        "request_latency": client.e2e[i] + 0.001,
        "time_to_first_token_ms": 1000 * client.ttft[i],
        "inter_token_latency_ms": 1000 * client.tpot[i] if output > 1 else None,
        "time_per_output_token_ms": 1000 * client.e2e[i] / output,
        "info": {
            "timings": {
                "request_start": start,
                "first_token_iteration": EPOCH + times[0],
                "last_token_iteration": EPOCH + times[-1],
                "token_iterations": output,
            }
        },
    }


def guidellm_before(client: Client) -> Any:
    """As GuideLLM 0.2 and 0.3."""
    requests = []
    for i, (times, output) in enumerate(zip(client.tokens, client.output, strict=True)):
        requests.append(
            {
                "type_": "generative_text_response",
                "prompt_tokens": client.prompt[i],
                "output_tokens": output,
                "start_time": EPOCH + client.sent[i],
                "end_time": EPOCH + times[-1] + 0.001,
                "first_token_time": EPOCH + times[0],
                "last_token_time": EPOCH + times[-1],
                "time_to_first_token_ms": 1000 * client.ttft[i],
                "inter_token_latency_ms": 1000 * client.tpot[i],
                "time_per_output_token_ms": 1000 * (times[-1] - times[0]) / output,
            }
        )
    strategy = {"type_": "poisson", "rate": RATE}
    found = {"args": {"strategy": strategy}, "requests": {"successful": requests}, "metrics": {}}
    return {"benchmarks": [found]}


def aiperf(client: Client) -> Any:
    """A list: one record a line."""
    return [_aiperf(client, i) for i in range(len(client.sent))]


def _aiperf(client: Client, i: int) -> dict[str, Any]:
    start = int((EPOCH + client.sent[i]) * 1e9)
    values: dict[str, Any] = {
        "time_to_first_token": (1000 * client.ttft[i], "ms"),
        "request_latency": (1000 * client.e2e[i], "ms"),
        "output_sequence_length": (client.output[i], "tokens"),
        "input_sequence_length": (client.prompt[i], "tokens"),
    }
    if client.output[i] > 1:
        values["inter_token_latency"] = (1000 * client.tpot[i], "ms")
        values["inter_chunk_latency"] = ([1000 * gap for gap in client.gaps[i]], "ms")
    return {
        "metadata": {"request_start_ns": start, "benchmark_phase": "profiling", "was_cancelled": False},
        "metrics": {name: {"value": value, "unit": unit} for name, (value, unit) in values.items()},
    }


def inference_perf(client: Client) -> Any:
    return [_inference_perf(client, i) for i in range(len(client.sent))]


def _inference_perf(client: Client, i: int) -> dict[str, Any]:
    times = [MONOTONIC + time for time in client.tokens[i]]
    return {
        "start_time": MONOTONIC + client.sent[i],
        "end_time": times[-1] + 0.001,
        "info": {
            "input_tokens": client.prompt[i],
            "response_metrics": {
                "output_tokens": client.output[i],
                "output_token_times": times,
                "server_usage": {"completion_tokens": client.output[i]},
            },
        },
        "computed_metrics": {
            "time_to_first_token": client.ttft[i],
            "time_per_output_token": client.tpot[i] if client.output[i] > 1 else None,
        },
        "error": None,
    }


def inference_perf_before(client: Client) -> Any:
    """As inference-perf before 0.5: counts and times in `info` itself, and nothing computed."""
    entries = inference_perf(client)
    for entry in entries:
        response = entry["info"].pop("response_metrics")
        entry["info"] |= {key: response[key] for key in ("output_tokens", "output_token_times")}
        del entry["computed_metrics"], entry["error"]
    return entries


WRITERS: dict[str, Callable[[Client], Any]] = {
    "vllm": vllm,
    "vllm_before": vllm_before,
    "sglang": sglang,
    "guidellm": guidellm,
    "guidellm_before": guidellm_before,
    "aiperf": aiperf,
    "inference_perf": inference_perf,
    "inference_perf_before": inference_perf_before,
}


def write(file: Path, form: str, content: Any) -> Path:
    """AIPerf and SGLang have an object a line, the others one value."""
    lines = content if form == "aiperf" else [content]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file


def changed(content: Any, change: Callable[[Any], None]) -> Any:
    """A copy with `change` made."""
    found = copy.deepcopy(content)
    change(found)
    return found


BAD: tuple[Any, ...] = (
    None, -1, 0, 1e308, -5.5, "x", "", [], {}, True, 10**30, [1, "a"], [[1]], {"a": 1},
    float("nan"), float("inf"),
)  # fmt: skip


def spots(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands; of long lists the first two and the last."""
    found = [path] if path else []
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = [(i, value[i]) for i in sorted({0, 1, len(value) - 1} & set(range(len(value))))]
    for key, inner in items:
        found += spots(inner, (*path, key))
    return found


def spoiled(content: Any, random: Random) -> Any:
    """A copy in which something is missing, or is what no tool writes."""
    found = copy.deepcopy(content)
    for *path, last in random.choices(spots(found), k=random.choice([1, 1, 2, 4])):
        place = found
        try:
            for key in path:
                place = place[key]
            if random.random() < 0.3:
                del place[last]
            else:
                place[last] = copy.deepcopy(random.choice(BAD))
        except (KeyError, IndexError, TypeError):
            continue  # it went with an earlier change
    return found
