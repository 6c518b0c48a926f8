"""What one step costs in seconds.

    Constant    a
    Linear      a + p * prompt tokens + d * rows + c * KV tokens read + q * prefill attention
    Roofline    max(FLOPs / rate, bytes / bandwidth) of the matrices + the same of attention
                + all-reduce + launch
    Hosted      a model of the device + the host's time, which adds to it or hides behind it
    any callable from Step to seconds

`stretch(step, k)` is the time of k quiet steps, the first of which is `step`.  The models
here give it in closed form; `stretch_of` gives every other cost a running sum.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Protocol, SupportsFloat

from batchwright import hardware
from batchwright.errors import CostError
from batchwright.hardware import Gpu, Model
from batchwright.hardware.kv import UTILIZATION as UTILIZATION
from batchwright.hardware.roofline import FIXED_SECONDS, MBU, MFU
from batchwright.step import Step

LEAST: Final = 1e-12  # seconds, of a step of any work
GREATEST: Final = 1e6  # seconds, of a step or of one of its tokens
FASTEST: Final = 1e40  # bytes/s of a link
Stretch = Callable[[Step, int], float]  # seconds of so many quiet steps


class Cost(Protocol):
    """A cost model.  Its time is finite and greater than 0, and a function of the step alone.

    It may also offer `stretch(step, steps)`, the seconds of that many quiet steps, if a step
    never gets cheaper as its context grows.
    """

    def seconds(self, step: Step) -> float: ...


CostModel = Cost | Callable[[Step], float]


@dataclass(frozen=True, init=False, repr=False)
class Constant:
    """Every step takes the same seconds, but for one that computes nothing, which takes `empty`.

    Raises CostError unless the seconds are finite and greater than 0, and `empty` is not negative.
    """

    each: float
    empty: float

    def __init__(self, seconds: float, empty: float = 0.0) -> None:
        _check_floor("constant", "seconds", seconds)
        _check_not_negative("constant", "empty", empty)
        object.__setattr__(self, "each", float(seconds))
        object.__setattr__(self, "empty", float(empty))

    def __repr__(self) -> str:
        empty = f", empty={self.empty!r}" if self.empty else ""
        return f"Constant(seconds={self.each!r}{empty})"

    def __reduce__(self) -> tuple[object, ...]:
        return Constant, (self.each, self.empty)

    def seconds(self, step: Step) -> float:
        return self.each

    def stretch(self, step: Step, steps: int) -> float:
        return steps * self.each


@dataclass(frozen=True)
class Linear:
    """Seconds that grow with the work of a step.

    base               every step
    prefill            per prompt token
    decode             per decode and padded row
    context            per KV token read, by decodes and chunks alike
    prefill_attention  per pair of a prompt token and a token that it attends to

    Raises CostError unless all are finite, base is greater than 0 and none is negative.
    """

    base: float
    prefill: float = 0.0
    decode: float = 0.0
    context: float = 0.0
    prefill_attention: float = 0.0

    def __post_init__(self) -> None:
        _check_floor("linear", "base", self.base)
        for name, value in (
            ("prefill", self.prefill),
            ("decode", self.decode),
            ("context", self.context),
            ("prefill_attention", self.prefill_attention),
        ):
            _check_not_negative("linear", name, value)

    def __reduce__(self) -> tuple[object, ...]:
        return Linear, (self.base, self.prefill, self.decode, self.context, self.prefill_attention)

    def seconds(self, step: Step) -> float:
        return self.stretch(step, 1)

    def stretch(self, step: Step, steps: int) -> float:
        rows = step.num_decodes + step.padded_rows
        each = self.base + self.decode * rows + self.context * (step.context_tokens + step.past_tokens)
        if step.prefill_tokens:
            each += self.prefill * step.prefill_tokens + self.prefill_attention * step.prefill_attention
        if steps == 1:
            return each
        return steps * each + self.context * (rows * (steps * (steps - 1) // 2))


@dataclass(frozen=True, init=False)
class Roofline:
    """Seconds from first principles: the slower of arithmetic and memory, twice.

        max(FLOPs / (F mfu tp), weight bytes / (W mbu tp))       matrices
        + max(FLOPs / (F mfu tp), KV bytes / (W mbu))            attention, KV bytes per GPU
        + 2 layers (2 (tp-1)/tp tokens hidden 2 bytes / link + hops)   all-reduce, if tp > 1
        + fixed_seconds                                          launch and sampling

    Of E experts, n tokens that use k each touch E (1 - (1 - k/E)^n) if the router is uniform, which
    is the most they can touch.  The output head works for sampled rows only.  `gpu` and `model` may
    be names, `model` also the path of a config.json; `link` in bytes/s, by default the GPU's.
    Raises InputError on an unknown name, LimitError on a `tp` that cannot split the heads,
    CostError on a fraction outside (0, 1] or a time or link that is not greater than 0.
    Source: roofline, Williams et al. 2009; step time, Pope et al. 2022 (arXiv 2211.05102).
    """

    gpu: Gpu
    model: Model
    tp: int
    mfu: float
    mbu: float
    link: float
    fixed_seconds: float
    _token: float = field(repr=False, compare=False)  # the same as in hardware.Coefficients
    _sample: float = field(repr=False, compare=False)
    _core: float = field(repr=False, compare=False)
    _head: float = field(repr=False, compare=False)
    _experts: float = field(repr=False, compare=False)
    _missed: float = field(repr=False, compare=False)
    _hops: float = field(repr=False, compare=False)
    _transfer: float = field(repr=False, compare=False)
    _pair: float = field(repr=False, compare=False)
    _read: float = field(repr=False, compare=False)

    def __init__(
        self,
        gpu: Gpu | str,
        model: Model | str | os.PathLike[str],
        tp: int = 1,
        mfu: float = MFU,
        mbu: float = MBU,
        link: float | None = None,
        fixed_seconds: float = FIXED_SECONDS,
    ) -> None:
        card, shape = hardware.find_gpu(gpu), hardware.find_model(model)
        hardware.check_tp(shape, tp)
        speed = card.link if link is None else link
        for name, value in (("mfu", mfu), ("mbu", mbu), ("link", speed), ("fixed_seconds", fixed_seconds)):
            _check_positive("roofline", name, value, FASTEST if name == "link" else GREATEST)
            object.__setattr__(self, name, float(value))
        if mfu > 1 or mbu > 1:
            raise CostError(f"mfu {mfu} or mbu {mbu} of roofline is over 1; both are fractions of the peak")
        object.__setattr__(self, "gpu", card)
        object.__setattr__(self, "model", shape)
        object.__setattr__(self, "tp", tp)
        unit = hardware.coefficients(card, shape, tp, mfu, mbu, speed)
        for name, value in asdict(unit).items():
            object.__setattr__(self, f"_{name}", value)

    def __reduce__(self) -> tuple[object, ...]:
        settings = (self.mfu, self.mbu, self.link, self.fixed_seconds)
        return Roofline, (self.gpu, self.model, self.tp, *settings)

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of KV that one token leaves on each GPU."""
        return hardware.kv_bytes_per_token(self.model, self.tp)

    @property
    def critical_tokens(self) -> float:
        """Tokens of a step from which the matrices are bound by arithmetic; more only add latency.

        With experts, tokens that are enough for all experts to be read.
        """
        return (self._core + self._experts) / self._token

    def num_kv_blocks(
        self,
        gpu_memory_utilization: float = UTILIZATION,
        block_size: int = 16,
        max_num_batched_tokens: int = 2048,
        max_num_seqs: int = 256,
    ) -> int:
        """KV blocks that requests can use.  Raises LimitError if the model does not fit."""
        return hardware.num_kv_blocks(
            self.gpu,
            self.model,
            self.tp,
            gpu_memory_utilization=gpu_memory_utilization,
            block_size=block_size,
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=max_num_seqs,
        )

    def seconds(self, step: Step) -> float:
        return self.stretch(step, 1)

    def stretch(self, step: Step, steps: int) -> float:
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
        return steps * each + _sum_of_greater(compute, self._pair * rows, memory, self._read * rows, steps)

    def _matrices(self, tokens: int, sampled: int) -> float:
        compute = self._token * tokens + self._sample * sampled
        memory = self._core
        if sampled:
            memory += self._head
        if self._experts > 0.0:
            memory += self._experts * (1.0 - pow(self._missed, float(tokens)))
        return compute if compute > memory else memory


@dataclass(frozen=True)
class Hosted:
    """A device and the host that schedules its steps in `base + per_running * running` seconds.

    running = decodes, padded rows and chunks.  The host's time adds to the device's; where scheduling
    is asynchronous (`overlapped`) the step takes the greater of both.
    Source of the defaults: schedule() and update of vLLM 0.32 on one CPU, 81 us at 8 running and
    254 us at 32.
    """

    cost: CostModel
    base: float = 20e-6
    per_running: float = 7.5e-6
    _device: Stretch = field(init=False, repr=False, compare=False)
    _overlap: Stretch = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_not_negative("hosted", "base", self.base)
        _check_not_negative("hosted", "per_running", self.per_running)
        closed = _closed_form(self.cost)
        if isinstance(self.cost, Hosted):
            raise CostError("cost of hosted has a host already; give the model of its device")
        object.__setattr__(self, "_device", stretch_of(self.cost))
        overlap = RunningSum(self._greater).stretch if closed is None else self._crossing
        object.__setattr__(self, "_overlap", overlap)

    def __reduce__(self) -> tuple[object, ...]:
        return Hosted, (self.cost, self.base, self.per_running)

    def host_seconds(self, step: Step) -> float:
        return self.base + self.per_running * (step.num_decodes + step.padded_rows + step.num_chunks)

    def seconds(self, step: Step) -> float:
        return self.stretch(step, 1)

    def stretch(self, step: Step, steps: int) -> float:
        return self._device(step, steps) + steps * self.host_seconds(step)

    def overlapped(self, step: Step, steps: int) -> float:
        """The same where the host's time hides behind the device's."""
        return self._overlap(step, steps)

    def _greater(self, step: Step) -> float:
        return max(self._device(step, 1), self.host_seconds(step))

    def _crossing(self, step: Step, steps: int) -> float:
        """The host is slower for the first steps, if at all: device time never falls in a stretch."""
        host = self.host_seconds(step)
        if self._device(step, 1) >= host:
            return self._device(step, steps)
        slow, fast = 0, steps  # the device is slower than the host from a step in (slow, fast] on
        while fast - slow > 1:
            middle = (slow + fast) // 2
            if self._device(step.later(middle), 1) >= host:
                fast = middle
            else:
                slow = middle
        if fast == steps:
            return steps * host
        return fast * host + self._device(step.later(fast), steps - fast)


class RunningSum:
    """The stretches of a cost without closed form, by adding up its single steps.

    The sums of the stretch at hand are kept, so that asking again for more or fewer steps of it
    prices only new ones.  Raises CostError on a time that no step can take.
    """

    def __init__(self, seconds: Callable[[Step], object]) -> None:
        self._seconds = seconds
        self._first = Step()
        self._next = Step()  # the first that has no sum yet
        self._sums = [0.0]  # of the first 0, 1, 2... steps

    def stretch(self, step: Step, steps: int) -> float:
        if not step.same(self._first):
            self._first = step.later(0)
            self._next = step.later(0)
            self._sums = [0.0]
        sums = self._sums
        while len(sums) <= steps:
            now = self._next
            sums.append(sums[-1] + _checked(self._seconds(now), now))
            self._next = now.later(1)
        return sums[steps]


class _Checked:
    """A stretch of the user's own, with its times checked."""

    def __init__(self, stretch: Callable[[Step, int], object]) -> None:
        self._stretch = stretch

    def stretch(self, step: Step, steps: int) -> float:
        return _checked(self._stretch(step, steps), step, steps * GREATEST)


def stretch_of(cost: CostModel, overlap: bool = False) -> Stretch:
    """The function (step, k) -> seconds of k quiet steps; `overlap`: a host hides behind its device.

    The function never changes the step, and raises CostError on a time that is not finite and
    greater than 0.  A cost with neither `stretch` nor `seconds` must be callable.
    """
    if isinstance(cost, Hosted):
        own = Hosted(cost.cost, cost.base, cost.per_running)  # whose sums nobody else adds to
        return own.overlapped if overlap else own.stretch
    if isinstance(cost, type):
        raise CostError(f"{cost.__name__} is a class, not a cost model; make an object of it")
    closed = _closed_form(cost)
    if closed is not None:
        return closed
    seconds = getattr(cost, "seconds", cost)
    if not callable(seconds):
        raise CostError(f"{cost!r} is no cost model; give one with seconds(step), or a function of a step")
    return RunningSum(seconds).stretch


def empty_seconds(cost: CostModel) -> float:
    """Seconds of a step that computes nothing: the device rests, so a cost model is not asked.

    Such a step only preempts, or waits for the ends of the one before (asynchronous scheduling).
    """
    if isinstance(cost, Hosted):
        return cost.base + empty_seconds(cost.cost)
    return cost.empty if isinstance(cost, Constant) else 0.0


def _closed_form(cost: Any) -> Stretch | None:
    if isinstance(cost, (Constant, Linear, Roofline, Hosted)):
        stretch: Stretch = cost.stretch
        return stretch
    own = getattr(cost, "stretch", None)
    return _Checked(own).stretch if callable(own) else None


def _sum_of_greater(a: float, a_step: float, b: float, b_step: float, steps: int) -> float:
    """Sum over j < steps of max(a + j a_step, b + j b_step)."""
    if a < b:
        a, a_step, b, b_step = b, b_step, a, a_step
    lead = steps  # steps in which a, the greater at first, stays so
    if b_step > a_step:
        meet = (a - b) / (b_step - a_step)
        if meet < steps - 1:
            lead = int(meet) + 1
    rest = steps - lead
    total = lead * a + a_step * (lead * (lead - 1) // 2)
    return total + rest * b + b_step * (rest * lead + rest * (rest - 1) // 2)


def _checked(value: object, step: Step, most: float = GREATEST) -> float:
    if type(value) is float and 0.0 < value <= most:  # a protocol is slow to check
        return value
    seconds = float(value) if isinstance(value, SupportsFloat) else 0.0
    if 0.0 < seconds <= most:
        return seconds
    raise CostError(
        f"the cost of a step of {step.prefill_tokens} prompt tokens in {step.num_chunks} chunks and "
        f"{step.num_decodes} decodes over {step.context_tokens} KV tokens is {value!r} seconds; "
        f"a cost must be greater than 0 and at most {most:g}"
    )


def _check_floor(model: str, name: str, value: float) -> None:
    """No engine makes a step in less than LEAST seconds; sums of such times would lose them."""
    _check_positive(model, name, value)
    if value < LEAST:
        raise CostError(f"{name} of {model} is {value}, but must be at least {LEAST:g}")


def _check_positive(model: str, name: str, value: float, most: float = GREATEST) -> None:
    if not 0 < value <= most:
        raise CostError(f"{name} of {model} is {value}, but must be greater than 0 and at most {most:g}")


def _check_not_negative(model: str, name: str, value: float) -> None:
    if not 0 <= value <= GREATEST:
        raise CostError(f"{name} of {model} is {value}, but must be at least 0 and at most {GREATEST:g}")
