"""What the server counts, as Prometheus text under vLLM's names, with the label `model_name`.

Times are the engine's: a token is there when its step has ended.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from batchwright.engines.live import Live
from batchwright.engines.sequence import Sequence

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
# Bounds of the histograms.  Source: vLLM 0.32, `v1/metrics/loggers.py`.
TTFT: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0),
    *(40.0, 80.0, 160.0, 640.0, 2560.0),
)
PER_TOKEN: Final = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0),
    *(40.0, 80.0),
)
WHOLE: Final = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0),
    *(480.0, 960.0, 1920.0, 7680.0),
)
TOKENS: Final = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
REASONS: Final = ("stop", "length", "abort", "error")


class Metrics:
    """The counts of one server.  Used in the event loop alone."""

    def __init__(self, model_name: str) -> None:
        self.registry = CollectorRegistry()
        self._name = model_name
        self._caches = False
        self._prompt = self._counter("prompt_tokens", "Prompt tokens of requests that got a token.")
        self._generated = self._counter("generation_tokens", "Tokens that were sampled.")
        self._preemptions = self._counter("num_preemptions", "Times that a request lost its KV blocks.")
        self._queries = self._counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.")
        self._hits = self._counter("prefix_cache_hits", "Prompt tokens found there.")
        success = Counter(
            "vllm:request_success",
            "Requests that have ended.",
            ("model_name", "finished_reason"),
            registry=self.registry,
        )
        self._ends = {reason: success.labels(model_name, reason) for reason in REASONS}
        self._ttft = self._histogram("time_to_first_token_seconds", "TTFT.", TTFT)
        self._gap = self._histogram("inter_token_latency_seconds", "ITL.", PER_TOKEN)
        self._tpot = self._histogram("request_time_per_output_token_seconds", "TPOT.", PER_TOKEN)
        self._e2e = self._histogram("e2e_request_latency_seconds", "E2E.", WHOLE)
        self._queued = self._histogram("request_queue_time_seconds", "From arrival to first step.", WHOLE)
        self._computed = self._histogram("iteration_tokens_total", "Tokens of a step.", TOKENS)

    def watch(self, live: Live) -> None:
        """Read the batch of `live` whenever somebody asks."""
        self._gauge("num_requests_running", "Requests that have a seat.").set_function(
            lambda: live.batch.num_running
        )
        self._gauge("num_requests_waiting", "Requests that wait for one.").set_function(
            lambda: live.batch.num_waiting
        )
        self._gauge("kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1.").set_function(
            lambda: 1 - live.blocks.free / live.blocks.size
        )
        limits = live.batch.limits
        facts = {
            "block_size": limits.block_size,
            "num_gpu_blocks": limits.blocks,
            "enable_prefix_caching": limits.enable_prefix_caching,
        }
        info = Gauge(
            "vllm:cache_config_info", "The KV cache.", ("model_name", *facts), registry=self.registry
        )
        info.labels(self._name, *facts.values()).set(1)
        self._caches = limits.enable_prefix_caching

    def text(self) -> bytes:
        """All of it, in Prometheus' text format."""
        return generate_latest(self.registry)

    # --- events ---------------------------------------------------------------

    def step(self, num_computed: int, num_sampled: int) -> None:
        """A step computed so many tokens, and sampled so many."""
        self._computed.observe(num_computed)
        self._generated.inc(num_sampled)

    def first_token(self, s: Sequence) -> None:
        """`s` got its first token."""
        r = s.request
        self._prompt.inc(r.prompt)
        self._queued.observe(s.started - r.arrival)
        if self._caches:
            self._queries.inc(r.prompt)
            self._hits.inc(min(r.cached, r.prompt))

    def seen_first(self, seconds: float) -> None:
        """A client saw its first token so long after it came."""
        self._ttft.observe(seconds)

    def seen_next(self, gap: float) -> None:
        """A client saw another token so long after the last one."""
        self._gap.observe(gap)

    def preempted(self, times: int) -> None:
        """A request was preempted so many times since it was last heard of."""
        self._preemptions.inc(times)

    def end(self, reason: str) -> None:
        """A request ended: stop, length, abort or error."""
        self._ends[reason].inc()

    def complete(self, e2e: float, tpot: float | None) -> None:
        """A client saw the last token; `tpot`: None if not defined."""
        self._e2e.observe(e2e)
        if tpot is not None:
            self._tpot.observe(tpot)

    # --- inside ---------------------------------------------------------------

    def _counter(self, name: str, said: str) -> Counter:
        return Counter(f"vllm:{name}", said, ("model_name",), registry=self.registry).labels(self._name)

    def _gauge(self, name: str, said: str) -> Gauge:
        return Gauge(f"vllm:{name}", said, ("model_name",), registry=self.registry).labels(self._name)

    def _histogram(self, name: str, said: str, bounds: tuple[float, ...]) -> Histogram:
        found = Histogram(f"vllm:{name}", said, ("model_name",), buckets=bounds, registry=self.registry)
        return found.labels(self._name)
