"""Another order of the waiting for a policy that has none of its own.

    ordered(order=sjf(sigma=0.5), policy=vllm(max_num_seqs=64))

order the one given · all else as in the policy within

An order sets up the queue and hands back who is asked: the policy itself, or one that does something
before it (`vtc` brings its counters up to date, `srpt` preempts).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from batchwright.batch import Batch
from batchwright.config import ordinary
from batchwright.contract import Begins, Policy
from batchwright.errors import InputError
from batchwright.policies.about import About
from batchwright.policies.deadline import Edf
from batchwright.policies.fair import Vtc
from batchwright.policies.longest_prefix import Lpm
from batchwright.policies.order import by_priority
from batchwright.policies.shortest import Sjf, Srpt
from batchwright.policies.text import part, read
from batchwright.policies.vllm import Vllm


class Order(Protocol):
    """An order of the waiting."""

    @property
    def note(self) -> str: ...  # what must be said of its results; "" is nothing
    def begin(self, batch: Batch, ask: Policy) -> Policy: ...


@ordinary
@dataclass(frozen=True)
class Fcfs:
    """First come, first served; the preempted in front."""

    @property
    def note(self) -> str:
        return ""

    def begin(self, batch: Batch, ask: Policy) -> Policy:
        return ask


@ordinary
@dataclass(frozen=True)
class Priority:
    """Lowest priority number first, then who came first."""

    @property
    def note(self) -> str:
        return ""

    def begin(self, batch: Batch, ask: Policy) -> Policy:
        batch.order_by(by_priority)
        return ask


ORDERS: Final[dict[str, type]] = {
    "fcfs": Fcfs,
    "priority": Priority,
    "sjf": Sjf,
    "srpt": Srpt,
    "lpm": Lpm,
    "vtc": Vtc,
    "edf": Edf,
}


def read_order(text: str) -> Any:
    """The order of one text such as `sjf(sigma=0.5)`.  Raises InputError."""
    return read(text, ORDERS, "order")


@ordinary
@dataclass(frozen=True)
class Ordered:
    """`order`: of `ORDERS`; None: first come, first served.  `policy`: None: vllm.

    Raises InputError if either is something else, or, when it begins, if the policy has an order of
    its own.
    """

    about = About(
        engine="any policy with another order of the waiting",
        order="fcfs, priority, sjf, srpt, lpm, vtc or edf",
        first="as the policy within",
        chunking="as the policy within",
        kv="as the policy within",
        victim="as the policy within; srpt also preempts who has most left",
        leave="as the policy within",
        source="see docs/order.md for each",
        left_out="an order for policies that have one of their own",
    )
    order: Any = field(default=None, metadata=part(read_order))
    policy: Any = field(default=None, metadata=part())

    def __post_init__(self) -> None:
        given: object = self.order
        if given is not None and type(given) not in ORDERS.values():
            raise InputError(f"ordered: order is {given!r}, but must be an order such as sjf(sigma=0.5)")
        if not _is_policy(self.policy):
            raise InputError(f"ordered: policy is {self.policy!r}, but must be another policy, such as vllm")

    @property
    def note(self) -> str:
        """What must be said of its results; "" is nothing."""
        return str(self.chosen.note)

    @property
    def chosen(self) -> Order:
        """The order, written out."""
        found: Order = Fcfs() if self.order is None else self.order
        return found

    def begin(self, batch: Batch) -> Policy:
        within = Vllm() if self.policy is None else self.policy
        ask: Policy = within.begin(batch) if isinstance(within, Begins) else within
        if batch.waiting.is_ordered:
            raise InputError(f"ordered: {within!r} has an order of its own; leave one of them out")
        return self.chosen.begin(batch, ask)


def _is_policy(value: object) -> bool:
    """May it stand within an order?"""
    if isinstance(value, (Ordered, type)):
        return False
    return value is None or isinstance(value, Begins) or callable(value)
