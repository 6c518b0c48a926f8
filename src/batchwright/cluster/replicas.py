"""`n` replicas of one server: what is compared as `replicas(n=4, policy=vllm, router=least_loaded)`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from batchwright.cluster.cluster import Cluster
from batchwright.cluster.contract import RouterBegins
from batchwright.cluster.routers import ROUTERS
from batchwright.config import ordinary
from batchwright.contract import Begins
from batchwright.cost import UTILIZATION, CostModel, Hosted, Roofline, device_of
from batchwright.errors import InputError
from batchwright.hardware import Gpu, find_gpu
from batchwright.limits import Limits
from batchwright.policies import AUTO, Ordered, Static
from batchwright.policies import policy as policy_of
from batchwright.policies.about import About
from batchwright.policies.check import check_count, check_number
from batchwright.policies.text import part, read
from batchwright.simulator import Simulator

MOST: Final = 10_000  # replicas


def router_of(text: str) -> Any:
    """The router of one text such as `power_of_two(seed=1)`.  Raises InputError."""
    return read(text, ROUTERS, "router")


@ordinary
@dataclass(frozen=True, kw_only=True)
class Replicas:
    """`n` replicas behind a router, each with its own batch under `policy`, and the same limits.

    n        replicas; None: one for each of `gpus`
    policy   of each: an object, or its text
    router   an object of `ROUTERS`, its text, or a function (request, replicas) -> index
    gpus     the GPU of each replica; None: that of the cost.  The cost must be a roofline, of which each
             replica gets its own, with the KV blocks of its memory
    gpu_memory_utilization   of these GPUs; None: 0.92

    Raises InputError on values that contradict each other, or that nobody can run.
    """

    about = About(
        engine="several servers behind a router",
        order="as the policy of each; central: one queue, first come",
        first="as the policy of each",
        chunking="as the policy of each",
        kv="as the policy of each",
        victim="as the policy of each",
        leave="as the policy of each",
        source="docs/replicas.md, router by router",
        left_out="time of router and network, retries, replicas that start or stop",
    )
    n: int | None = None
    policy: Any = field(default="vllm", metadata=part(policy_of))
    router: Any = field(default="round_robin", metadata=part(router_of))
    gpus: tuple[str, ...] | None = field(default=None, metadata=part(str))
    gpu_memory_utilization: float | None = None

    def __post_init__(self) -> None:
        check_count("replicas", self, "n", optional=True)
        self._set("policy", policy_of)
        self._set("router", router_of)
        self._check_gpus()
        self._check_count()
        self._check_policy()

    @property
    def count(self) -> int:
        """How many replicas."""
        assert self.n is not None or self.gpus is not None
        return len(self.gpus) if self.gpus is not None else self.n or 0

    @property
    def note(self) -> str:
        """What must be said of its results; "" is nothing."""
        return self.policy.note if isinstance(self.policy, Ordered) else ""

    def cluster(self, cost: CostModel, limits: Limits) -> Cluster:
        """The replicas, ready to run.

        Raises InputError if `gpus` are given and `cost` is no roofline, or `limits` has other KV blocks
        than its memory leaves; LimitError if a GPU cannot hold the model, or the longest request.
        """
        servers = [(cost, limits)] * self.count if self.gpus is None else self._on_gpus(cost, limits)
        return Cluster([Simulator(self.policy, *server) for server in servers], self.router)

    def _set(self, name: str, reader: Any) -> None:
        value = vars(self)[name]
        if isinstance(value, str):
            object.__setattr__(self, name, reader(value))

    def _check_gpus(self) -> None:
        given: object = self.gpus
        if given is None:
            return
        if not isinstance(given, (tuple, list)):
            raise InputError(f"replicas: gpus is {given!r}, but must be a list in brackets, one for each")
        for gpu in given:
            if not isinstance(gpu, (str, Gpu)):
                raise InputError(f"replicas: gpus has {gpu!r}, but must have names of GPUs, such as H100-SXM")
            find_gpu(gpu)

    def _check_count(self) -> None:
        if self.n is None and not self.gpus:
            raise InputError("replicas: neither n nor gpus is given; say how many, such as replicas(n=4)")
        if self.n is not None and self.gpus is not None and self.n != len(self.gpus):
            raise InputError(f"replicas: n is {self.n}, but {len(self.gpus)} gpus are given; leave out n")
        if self.count > MOST:
            raise InputError(f"replicas: n is {self.count}, but must be at most {MOST}")
        if self.gpu_memory_utilization is not None and self.gpus is None:
            raise InputError(
                "replicas: gpu_memory_utilization is that of gpus, which are not given; leave it out"
            )
        check_number("replicas", self, "gpu_memory_utilization", 0.0, 1.0, optional=True)

    def _check_policy(self) -> None:
        if not isinstance(self.policy, Begins) and not callable(self.policy):
            raise InputError(f"replicas: policy is {self.policy!r}, but must be one policy, such as vllm")
        if isinstance(self.policy, Static) and self.policy.batch_size == AUTO:
            raise InputError("replicas: static(batch_size=auto) is found for one server only; give a number")
        if not isinstance(self.router, RouterBegins) and not callable(self.router):
            raise InputError(
                f"replicas: router is {self.router!r}, but must be one router, such as round_robin"
            )

    # --- GPUs that differ -------------------------------------------------------

    def _on_gpus(self, cost: CostModel, limits: Limits) -> list[tuple[CostModel, Limits]]:
        assert self.gpus is not None
        self._check_blocks(cost, limits)
        return [self._on(gpu, cost, limits) for gpu in self.gpus]

    def _on(self, gpu: str, cost: CostModel, limits: Limits) -> tuple[CostModel, Limits]:
        moved = on_gpu(cost, gpu)
        return moved, replace(limits, num_kv_blocks=self._blocks(roofline_of(moved), limits))

    def _check_blocks(self, cost: CostModel, limits: Limits) -> None:
        device = roofline_of(cost)
        expected = self._blocks(device, limits)
        if limits.num_kv_blocks != expected:
            raise InputError(
                f"replicas: gpus bring KV blocks of their own, but num_kv_blocks is {limits.num_kv_blocks}, "
                f"not the {expected} that {device.gpu.name} holds at gpu_memory_utilization {self._share}; "
                "leave num_kv_blocks out"
            )

    def _blocks(self, device: Roofline, limits: Limits) -> int:
        seqs, tokens = limits.max_num_seqs, limits.max_num_batched_tokens
        return device.num_kv_blocks_of_round(self._share, limits.block_size, tokens, seqs)

    @property
    def _share(self) -> float:
        return UTILIZATION if self.gpu_memory_utilization is None else self.gpu_memory_utilization


def roofline_of(cost: CostModel) -> Roofline:
    """The roofline in `cost`, without its host.  Raises InputError if it is none."""
    device = device_of(cost)
    if not isinstance(device, Roofline):
        raise InputError(
            f"replicas: gpus are given, but the cost is {device!r}, which has no GPU; give a GPU and a model "
            "as cost, or n in place of gpus"
        )
    return device


def on_gpu(cost: CostModel, gpu: str) -> CostModel:
    """The same model, split alike, on other GPUs, with their link unless another one was given."""
    device = roofline_of(cost)
    link = None if device.link == device.gpu.link else device.link
    moved = Roofline(
        gpu,
        device.model,
        device.tp,
        device.mfu,
        device.mbu,
        link,
        device.fixed_seconds,
        pp=device.pp,
        dp=device.dp,
        ep=device.ep,
        router_skew=device.router_skew,
        context_cv=device.context_cv,
    )
    return Hosted(moved, cost.base, cost.per_running) if isinstance(cost, Hosted) else moved
