"""Schedulers for `vllm serve --scheduler-cls`: static, dynamic, or your own rule of admission.

    vllm serve MODEL --scheduler-cls batchwright.engines.vllm.Dynamic \\
        --additional-config '{"batchwright": {"max_batch_size": 32, "window": 0.1}}'

They only cap how many requests may have a seat; tokens, KV blocks and preemption stay vLLM's.  The
engine asks at every step, and about a thousand times a second while nobody may join, so a rule need
not be woken.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from batchwright.engines.vllm.versions import check_version
from batchwright.errors import InputError
from batchwright.policies import admission
from batchwright.policies.admission import Cap, DynamicAdmission, StaticAdmission

check_version()

from vllm.v1.core.sched.async_scheduler import AsyncScheduler  # noqa: E402  of a version that we know
from vllm.v1.core.sched.scheduler import Scheduler  # noqa: E402

KEY: Final = "batchwright"  # of vLLM's additional configuration


class Admission(Scheduler):
    """vLLM's scheduler with its admission capped by a rule; asynchronous if the engine is.

    settings   a subclass names it: called with the options under "batchwright" in vLLM's additional
               configuration, it returns an object whose `begin(max_num_seqs)` gives the rule
    clock      seconds, in which vLLM tells when a request came

    Raises InputError on options that are wrong, LimitError where they do not fit `max_num_seqs`.
    """

    settings: Callable[..., admission.Admission]
    clock: Callable[[], float] = staticmethod(time.time)
    max_num_active_reqs: int  # vLLM's: as many may have a seat

    def __new__(cls, vllm_config: Any, **others: Any) -> Admission:
        """Under an asynchronous engine a plain `Scheduler` takes up to twice the steps."""
        if vllm_config.scheduler_config.async_scheduling and not issubclass(cls, AsyncScheduler):
            cls = type(cls.__name__, (cls, AsyncScheduler), {})
        return object.__new__(cls)

    def __init__(self, vllm_config: Any, **others: Any) -> None:
        super().__init__(vllm_config=vllm_config, **others)
        self._most: int = self.max_num_active_reqs
        self._queue = _Queue()
        settings = _made(type(self).settings, vllm_config.additional_config)
        self._cap = Cap(settings.begin(self._most), self._queue)

    def add_request(self, request: Any) -> None:
        if request.request_id not in self.requests:  # else more input of a session
            self._queue.unseated[request.request_id] = request.arrival_time
        super().add_request(request)

    def schedule(self, *others: Any, **named: Any) -> Any:
        queue = self._queue
        queue.now = self.clock()
        queue.num_seated = sum(self.get_request_counts()) - queue.num_unseated
        self.max_num_active_reqs = min(self._most, self._cap.seats())
        planned = super().schedule(*others, **named)
        before = queue.num_unseated
        for new in planned.scheduled_new_reqs:
            queue.unseated.pop(new.req_id, None)
        self._cap.seated(before - queue.num_unseated)
        return planned

    def _free_request(self, request: Any, *others: Any, **named: Any) -> Any:
        self._queue.unseated.pop(request.request_id, None)  # its client may have gone before it had a seat
        return super()._free_request(request, *others, **named)


class Static(Admission):
    """Static batching; options `batch_size` and `idle`."""

    settings = StaticAdmission


class Dynamic(Admission):
    """Dynamic batching; options `max_batch_size`, `window` and `preferred_sizes`."""

    settings = DynamicAdmission


class _Queue:
    """What rules are told of a scheduler of vLLM."""

    def __init__(self) -> None:
        self.now = 0.0
        self.num_seated = 0
        self.unseated: dict[str, float] = {}  # who waits for a first seat, and when it came

    @property
    def num_unseated(self) -> int:
        return len(self.unseated)

    def arrivals(self) -> list[float]:
        return list(self.unseated.values())

    def wake_at(self, seconds: float) -> None:
        """The engine asks anyway."""


def _made(settings: Callable[..., admission.Admission], additional: Any) -> admission.Admission:
    """The settings, from vLLM's additional configuration.  Raises InputError on an unknown option."""
    options = additional.get(KEY, {}) if isinstance(additional, dict) else {}
    if not isinstance(options, dict):
        raise InputError(
            f"{KEY} of the additional configuration is {options!r}, but must be an object of options"
        )
    try:
        return settings(**options)
    except TypeError as error:
        raise InputError(f"{KEY} of the additional configuration: {error}; see docs/vllm.md") from None
