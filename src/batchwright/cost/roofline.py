"""Seconds from first principles."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from math import ceil
from typing import Final

from batchwright import hardware
from batchwright.cost.attention import Attention
from batchwright.cost.checks import GREATEST, check_not_negative, check_positive
from batchwright.cost.lines import sum_of_greater
from batchwright.cost.parallel import Parallel
from batchwright.errors import CostError
from batchwright.hardware import Coefficients, Gpu, Model
from batchwright.hardware.roofline import FIXED_SECONDS, MBU, MFU
from batchwright.step import Step

FASTEST: Final = 1e40  # bytes/s of a link
UNEVEN: Final = 20.0  # the most that routers and contexts differ


@dataclass(frozen=True, init=False)
class Roofline:
    """Seconds from first principles: the slower of arithmetic and memory, twice.

        max(FLOPs / (F mfu tp), weight bytes / (W mbu tp))       matrices
        + max(FLOPs / (F mfu tp), KV bytes / (W mbu))            attention, KV bytes per GPU
        + 2 layers (2 (tp-1)/tp tokens hidden 2 bytes / link + hops)   all-reduce, if tp > 1
        + fixed_seconds                                          launch and sampling

    `pp` pipeline stages, `dp` data-parallel ranks in lock step, and `ep`, experts spread over all
    tp * dp GPUs: see `parallel`.  Then a step is a round: one token for every row of every rank.
    `router_skew`: the i-th most popular expert is used i^-router_skew as often as the first.
    `context_cv`: standard deviation over mean of the contexts in a batch, which makes ranks unequal;
    by default that of exponential lengths.

    Of E experts, n tokens that use k each touch E (1 - (1 - k/E)^n) if the router is uniform, which
    is the most they can touch.  The output head works for sampled rows only.  `gpu` and `model` may
    be names, `model` also the path of a config.json; `link` in bytes/s, by default the GPU's.  Layers with
    a window read at most that; decodes of latent attention work on the cached vectors: see `attention`.
    `dtype`, `quantization` and `kv_cache_dtype` are vLLM's flags of these names; `model` is then as served.
    Raises InputError on an unknown name or a format that contradicts the model's, LimitError on a `tp`
    that cannot split the heads or a split that it has no layers or experts for, CostError on a fraction
    outside (0, 1], a time or link that is not greater than 0, or a `router_skew` or `context_cv` outside
    0 to 20.
    Source: roofline, Williams et al. 2009; step time, Pope et al. 2022 (arXiv 2211.05102).
    """

    gpu: Gpu
    model: Model
    tp: int
    mfu: float
    mbu: float
    link: float
    fixed_seconds: float
    pp: int
    dp: int
    ep: bool
    router_skew: float
    context_cv: float
    _token: float = field(repr=False, compare=False)  # the same as in hardware.Coefficients
    _sample: float = field(repr=False, compare=False)
    _core: float = field(repr=False, compare=False)
    _head: float = field(repr=False, compare=False)
    _experts: float = field(repr=False, compare=False)
    _missed: float = field(repr=False, compare=False)
    _hops: float = field(repr=False, compare=False)
    _transfer: float = field(repr=False, compare=False)
    _pair: float = field(repr=False, compare=False)
    _absorbed: float = field(repr=False, compare=False)
    _remade: float = field(repr=False, compare=False)
    _read: float = field(repr=False, compare=False)
    _attention: Attention | None = field(repr=False, compare=False)  # None: every layer sees all
    _parallel: Parallel | None = field(repr=False, compare=False)

    def __init__(
        self,
        gpu: Gpu | str,
        model: Model | str | os.PathLike[str],
        tp: int = 1,
        mfu: float = MFU,
        mbu: float = MBU,
        link: float | None = None,
        fixed_seconds: float = FIXED_SECONDS,
        pp: int = 1,
        dp: int = 1,
        ep: bool = False,
        router_skew: float = 0.0,
        context_cv: float = 1.0,
        dtype: str = "auto",
        quantization: str | None = None,
        kv_cache_dtype: str = "auto",
    ) -> None:
        card = hardware.find_gpu(gpu)
        shape = hardware.served(hardware.find_model(model), card, dtype, quantization, kv_cache_dtype)
        hardware.check_split(shape, tp, pp, dp, ep)
        speed = card.link if link is None else link
        for name, value in (("mfu", mfu), ("mbu", mbu), ("link", speed), ("fixed_seconds", fixed_seconds)):
            check_positive("roofline", name, value, FASTEST if name == "link" else GREATEST)
            object.__setattr__(self, name, float(value))
        if mfu > 1 or mbu > 1:
            raise CostError(f"mfu {mfu} or mbu {mbu} of roofline is over 1; both are fractions of the peak")
        for name, value in (("router_skew", router_skew), ("context_cv", context_cv)):
            check_not_negative("roofline", name, value, UNEVEN)
            object.__setattr__(self, name, float(value))
        if router_skew and not shape.moe_layers:
            raise CostError(f"router_skew is given, but {shape.name} has no experts; leave it out")
        splits = {"gpu": card, "model": shape, "tp": tp, "pp": pp, "dp": dp, "ep": ep}
        for name, part in splits.items():
            object.__setattr__(self, name, part)
        unit = hardware.coefficients(card, shape, tp, mfu, mbu, speed)
        for name, value in asdict(unit).items():
            object.__setattr__(self, f"_{name}", value)
        is_mixed = shape.window_layers > 0 or shape.latent is not None
        object.__setattr__(self, "_attention", Attention(shape, unit) if is_mixed else None)
        object.__setattr__(self, "_parallel", None if self.is_plain else self._spread_out(unit))

    def _spread_out(self, unit: Coefficients) -> Parallel:
        spread = hardware.spread(
            self.gpu, self.model, self.tp, self.dp, self.ep, self.mfu, self.mbu, self.link
        )
        return Parallel(
            unit,
            spread,
            self.model,
            self._attention,
            self.pp,
            self.dp,
            self.fixed_seconds,
            self.router_skew,
            self.context_cv,
        )

    def __reduce__(self) -> tuple[object, ...]:
        settings = (self.mfu, self.mbu, self.link, self.fixed_seconds)
        splits = (self.pp, self.dp, self.ep, self.router_skew, self.context_cv)
        return Roofline, (self.gpu, self.model, self.tp, *settings, *splits)

    @property
    def is_plain(self) -> bool:
        """Does the formula above say all: one stage, one rank, and experts that are alike?"""
        is_one = self.pp == 1 and self.dp == 1 and not (self.ep and self.tp > 1)
        return is_one and self.router_skew == 0.0

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of KV that one token leaves on each GPU; of a pipeline, on the fullest."""
        return hardware.kv_bytes_per_token(self.model, self.tp, self.pp)

    @property
    def critical_tokens(self) -> float:
        """Tokens of a step from which the matrices are bound by arithmetic; more only add latency.

        With experts, tokens that are enough for all experts to be read.
        """
        return (self._core + self._experts) / self._token

    def num_kv_blocks(
        self,
        gpu_memory_utilization: float | None = None,
        block_size: int = 16,
        max_num_batched_tokens: int = 2048,
        max_num_seqs: int = 256,
        engine: str | None = None,
    ) -> int:
        """KV blocks that requests can use.  Raises LimitError if the model does not fit.

        As an engine counts them, which its flags bound: those of one data-parallel rank, and of
        one micro-batch of a pipeline.  `engine`: such as `vllm@0.19`; None: the latest vLLM; so is its
        default of `gpu_memory_utilization`.
        """
        return hardware.num_kv_blocks(
            self.gpu,
            self.model,
            self.tp,
            pp=self.pp,
            dp=self.dp,
            ep=self.ep,
            gpu_memory_utilization=gpu_memory_utilization,
            block_size=block_size,
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=max_num_seqs,
            engine=engine,
        )

    def num_kv_blocks_of_round(
        self,
        gpu_memory_utilization: float | None,
        block_size: int,
        max_num_batched_tokens: int,
        max_num_seqs: int,
        engine: str | None = None,
    ) -> int:
        """The same of all data-parallel ranks, under the limits of a round."""
        tokens = ceil(max_num_batched_tokens / (self.dp * self.pp))
        seqs = ceil(max_num_seqs / self.dp)
        return self.dp * self.num_kv_blocks(gpu_memory_utilization, block_size, tokens, seqs, engine)

    def seconds(self, step: Step) -> float:
        return self.stretch(step, 1)

    def stretch(self, step: Step, steps: int) -> float:
        if self._attention is not None:
            return self._mixed_stretch(self._attention, step, steps)
        if self._parallel is not None:
            return self._parallel.stretch(step, steps)
        rows = step.num_decodes + step.padded_rows
        tokens = rows + step.prefill_tokens
        if tokens == 0:
            return steps * self.fixed_seconds
        each = self.fixed_seconds + self._hops + self._transfer * tokens
        each += self._matrices(tokens, step.sampled_rows)
        pairs = step.context_tokens + rows + step.prefill_attention + 0.5 * step.prefill_tokens
        compute = self._pair * pairs
        memory = self._read * (step.context_tokens + step.past_tokens + tokens)
        if steps == 1:
            return each + (compute if compute > memory else memory)
        return steps * each + sum_of_greater(compute, self._pair * rows, memory, self._read * rows, steps)

    def _mixed_stretch(self, attention: Attention, step: Step, steps: int) -> float:
        """The two parts of a stretch: until the windows are full, and from then on."""
        part = attention.steps_to_fill(step)
        if not 0 < part < steps:
            return self._mixed_part(attention, step, steps)
        rest = self._mixed_part(attention, step.later(part), steps - part)
        return self._mixed_part(attention, step, part) + rest

    def _mixed_part(self, attention: Attention, step: Step, steps: int) -> float:
        if self._parallel is not None:
            return self._parallel.stretch(step, steps)
        rows = step.num_decodes + step.padded_rows
        tokens = rows + step.prefill_tokens
        if tokens == 0:
            return steps * self.fixed_seconds
        each = self.fixed_seconds + self._hops + self._transfer * tokens
        each += self._matrices(tokens, step.sampled_rows)
        seen = attention.seen(step)
        pair, growth = self._pair * attention.absorbed, seen.growth * rows
        compute = pair * (seen.context + rows) + self._pair * seen.pairs
        memory = self._read * (seen.context + seen.past + tokens)
        if steps == 1:
            return each + (compute if compute > memory else memory)
        return steps * each + sum_of_greater(compute, pair * growth, memory, self._read * growth, steps)

    def _matrices(self, tokens: int, sampled: int) -> float:
        compute = self._token * tokens + self._sample * sampled
        memory = self._core
        if sampled:
            memory += self._head
        if self._experts > 0.0:
            memory += self._experts * (1.0 - pow(self._missed, float(tokens)))
        return compute if compute > memory else memory
