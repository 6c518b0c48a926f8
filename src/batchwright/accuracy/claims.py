"""What other simulators say of their own accuracy, each with its source, and whether it can be compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Claim:
    """`says`: the figure; `of`: what was predicted; `compared`: how far it can be set beside ours."""

    simulator: str
    says: str
    of: str
    compared: str
    source: str


CLAIMS: Final = (
    Claim(
        simulator="LLMServingSim 2",
        says="TTFT -2.8 %, TPOT -0.3 %, E2E -1.0 % (means); another version of the page: -0.3, +0.7 and "
        "+0.4 %; the file beside the measurement: -4.0, -1.0 and -1.8 %",
        of="Llama-3.1-8B on RTX PRO 6000, vLLM 0.19, 300 requests",
        compared="directly: the same run, predicted from the same layer profile",
        source="llmservingsim.ai/docs/validation (two versions); sim_vs_vllm_summary.txt of the run",
    ),
    Claim(
        simulator="LLMServingSim 2",
        says="1.9 % on average",
        of="serving on GPUs, several models",
        compared="no: an average over runs whose measurements are not published with it",
        source="arXiv 2511.07229, abstract",
    ),
    Claim(
        simulator="Vidur",
        says="under 9 % in latency, over the range",
        of="normalised latency of LLaMA2 and others on A100 and H100, an engine of the authors",
        compared="no: other engine, metric and runs",
        source="MLSys 2024, arXiv 2405.05465, abstract",
    ),
    Claim(
        simulator="BLIS (evolved)",
        says="11.8 % in mean E2E, 22.8 % in mean TTFT (MAPE over experiments)",
        of="six models on H100, A100 and L40S, vLLM 0.15.1; 36 or 38 experiments, the page says both",
        compared="in kind, not in runs: means of served traces; coefficients are trained on such runs",
        source="inference-sim/inference-sim, docs/blog/posts/inference-simulator-showdown.md (2026)",
    ),
    Claim(
        simulator="Vidur, by the authors of BLIS",
        says="619 % in E2E (median)",
        of="the 4 of these experiments that it can run",
        compared="no: a rival's measurement, of the version for vLLM 0",
        source="the same",
    ),
    Claim(
        simulator="LLMServingSim, by the authors of BLIS",
        says="76 % in E2E",
        of="1 of these experiments, Mixtral-8x7B at TP 4",
        compared="no: a rival's measurement",
        source="the same",
    ),
    Claim(
        simulator="BLIS, latency kernel 0.1",
        says="10.2 % in the time of a step (mean absolute, 3.4 % too short)",
        of="219 forward passes of NVIDIA's FPM data, nothing fitted on them",
        compared="with the roofline's step times above: both are of single steps, on other GPUs",
        source="inference-sim/blis-latency-kernel, docs/research/accuracy.md",
    ),
    Claim(
        simulator="AISimulate (AIConfigurator)",
        says="10.1 % in how TPOT grows with concurrency",
        of="1,135 points of InferenceX, each curve divided by its first point",
        compared="no: the level cancels, and lengths are all alike",
        source="quoted by inference-sim/blis-latency-kernel, docs/research/accuracy.md; the page itself, "
        "ai-dynamo.org/aisimulate/e2e-accuracy, is made anew every day",
    ),
    Claim(
        simulator="KernelSight-LM",
        says="15.4 % in TTFT, 12.8 % in TPOT, 3.0 % in throughput (medians)",
        of="six families of models on a GPU generation that was not profiled",
        compared="in kind, with the uncalibrated roofline above",
        source="arXiv 2606.28565, abstract",
    ),
)
