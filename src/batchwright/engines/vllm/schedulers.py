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

    def __new__(cls, vllm_config: Any, **others: Any) -> Admission:
        """Under an asynchronous engine a plain `Scheduler` takes up to twice the steps."""
        if vllm_config.scheduler_config.async_scheduling and not issubclass(cls, AsyncScheduler):
            cls = type(cls.__name__, (cls, AsyncScheduler), {})
        return object.__new__(cls)

    def __init__(self, vllm_config: Any, **others: Any) -> None:
        super().__init__(vllm_config=vllm_config, **others)
        self._most: int = self.max_num_active_reqs
        self._cap = Cap(_made(type(self).settings, vllm_config.additional_config).begin(self._most))
        self._view = _View()

    def add_request(self, request: Any) -> None:
        if request.request_id not in self.requests:  # else more input of a session
            self._view.coming[request.request_id] = request.arrival_time
        super().add_request(request)

    def schedule(self, *others: Any, **named: Any) -> Any:
        view = self._view
        view.now = self.clock()
        view.num_running = sum(self.get_request_counts()) - view.num_waiting
        self.max_num_active_reqs = min(self._most, self._cap.seats(view))
        planned = super().schedule(*others, **named)
        before = view.num_waiting
        for new in planned.scheduled_new_reqs:
            view.coming.pop(new.req_id, None)
        self._cap.seated(before - view.num_waiting)
        return planned

    def _free_request(self, request: Any, *others: Any, **named: Any) -> Any:
        self._view.coming.pop(request.request_id, None)  # it may have gone before it had a seat
        return super()._free_request(request, *others, **named)


class Static(Admission):
    """Static batching; options `batch_size` and `idle`."""

    settings = StaticAdmission


class Dynamic(Admission):
    """Dynamic batching; options `max_batch_size`, `window` and `preferred_sizes`."""

    settings = DynamicAdmission


class _View:
    """A scheduler of vLLM, as rules see it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.num_running = 0
        self.coming: dict[str, float] = {}  # who waits for a first seat, and since when

    @property
    def num_waiting(self) -> int:
        return len(self.coming)

    @property
    def oldest(self) -> float:
        return min(self.coming.values())

    @property
    def newest(self) -> float:
        return max(self.coming.values())

    def wake_at(self, seconds: float) -> None:
        """The engine asks anyway."""


def _made(settings: Callable[..., admission.Admission], additional: Any) -> admission.Admission:
    """The settings, from vLLM's additional configuration.  Raises InputError on an unknown option."""
    options = additional.get(KEY, {}) if isinstance(additional, dict) else {}
    if not isinstance(options, dict):
        raise InputError(f"{KEY} of the additional configuration is {options!r}, but must be an object of options")
    try:
        return settings(**options)
    except TypeError as error:
        raise InputError(f"{KEY} of the additional configuration: {error}; see docs/vllm.md") from None
