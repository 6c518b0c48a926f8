"""Splitwise: a pool of machines for prompts, one for tokens, and a mixed one for what overflows.

    prompt   to the machine of the prompt pool with the fewest pending tokens, if these are at most
             `prompt_max_pending_batch_tokens`; else of the mixed pool; else of the token pool
    decode   to the machine of the token pool with the least memory promised, if the request fits beside
             it; else of the mixed pool; else of the prompt pool

Both are chosen when the request comes.  A machine that helps out the other pool is mixed from then on,
until it has nothing to do.  Where no machine has room, the least loaded of the own pool gets it.  Memory
is promised for prompt and `max_tokens`; KV is sent whenever the two machines are not the same.

Source: Patel et al., Splitwise, ISCA 2024, section 4.3, and its simulator, splitwise-sim (mixed pool
scheduler, which promises memory for the true output; that is not known here).  Left out: sending KV layer
by layer while the prompt is computed, and pools that grow and shrink with the load.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from batchwright.cluster.between import check_link, check_servers, link_between
from batchwright.cluster.cluster import Cluster
from batchwright.cluster.replica import Replica
from batchwright.config import ordinary
from batchwright.cost import CostModel
from batchwright.limits import Limits
from batchwright.policies.about import About
from batchwright.policies.check import check_count
from batchwright.policies.kv import whole_length
from batchwright.policies.machine import Machine
from batchwright.request import CANCELLED, FINISHED, Request
from batchwright.simulator import Simulator

Load = Callable[[int], int]  # of a machine, by its number
INFINIBAND: Final = 25e9  # bytes/s of each GPU: 200 Gb/s, as between the DGX machines of the paper


@ordinary
@dataclass(frozen=True, kw_only=True)
class Splitwise:
    """`prompt` and `token`: machines of each pool, each a server of its own.

    max_batch_tokens                  prompt tokens of one step
    max_preemptions                   steps in a row that the decodes of a mixed machine wait for prompts
    prompt_max_pending_batch_tokens   prompt tokens that a machine may have to compute before others help out
    bandwidth                         bytes/s from GPU to GPU in each direction; None: 25e9, InfiniBand
    latency                           seconds of every transfer beside
    kv_bytes_per_token                on each GPU; None: the model's

    Raises InputError on values that cannot be.
    """

    about = About(
        engine="Splitwise, on several servers",
        order="first come",
        first="prompts and decodes on pools of their own; on a mixed machine prompts, alone",
        chunking="none",
        kv="the prompt, or what has come and one token",
        victim="the newest; recomputes",
        leave="at once",
        source="Splitwise, ISCA 2024, and splitwise-sim",
        left_out="KV sent layer by layer, pools that grow and shrink, prefix cache",
    )
    prompt: int = 1
    token: int = 1
    max_batch_tokens: int = 2048
    max_preemptions: int = 4
    prompt_max_pending_batch_tokens: int = 8192
    bandwidth: float | None = None
    latency: float = 0.0
    kv_bytes_per_token: float | None = None

    def __post_init__(self) -> None:
        counts = ("prompt", "token", "max_batch_tokens", "max_preemptions", "prompt_max_pending_batch_tokens")
        for name in counts:
            check_count("splitwise", self, name)
        check_servers("splitwise", self.prompt, self.token)
        check_link("splitwise", self)

    def cluster(self, cost: CostModel, limits: Limits) -> Cluster:
        """The machines, ready to run.  Raises InputError if `cost` does not know a link that it needs."""
        link = link_between("splitwise", self, cost, lambda device: INFINIBAND)
        machine = Machine(max_batch_tokens=self.max_batch_tokens, max_preemptions=self.max_preemptions)
        simulators = [Simulator(machine, cost, limits) for _ in range(self.prompt + self.token)]
        memory = limits.blocks * limits.block_size
        pools = Pools(self.prompt, self.token, self.prompt_max_pending_batch_tokens, memory)
        return Cluster(simulators, pools, pools.decoder, link)


class Pools:
    """The pools of one run: a router, and with `decoder` the second one.  `memory`: tokens of a machine."""

    def __init__(self, prompt: int, token: int, most_pending: int, memory: int) -> None:
        self.prompt = range(prompt)
        self.token = range(prompt, prompt + token)
        self.mixed: set[int] = set()
        self.most_pending = most_pending
        self.memory = memory
        self.promised: list[dict[Request, int]] = [{} for _ in range(prompt + token)]
        self._decoders: dict[Request, int] = {}

    def __call__(self, r: Request, replicas: Sequence[Replica]) -> int:
        """The machine that computes the prompt of `r`, which has just come."""
        self._look(replicas)
        prompt = self._find(self.prompt, self.token, lambda i: replicas[i].pending_tokens, self.most_pending)
        room = self.memory - whole_length(r)
        token = self._find(self.token, self.prompt, self._memory, room)
        self._decoders[r] = token
        self.promised[token][r] = whole_length(r)
        return prompt

    def decoder(self, r: Request, replicas: Sequence[Replica]) -> int:
        """The machine that decodes `r`, whose prompt is complete."""
        return self._decoders.pop(r)

    def _look(self, replicas: Sequence[Replica]) -> None:
        """Forget who has left; a mixed machine with nothing to do goes back to its pool."""
        for promised in self.promised:
            for r in [r for r in promised if r.state in (FINISHED, CANCELLED)]:
                del promised[r]
        for i in sorted(self.mixed):
            if replicas[i].num_requests == 0 and not self.promised[i]:
                self.mixed.discard(i)

    def _find(self, own: range, other: range, load: Load, most: int) -> int:
        """The least loaded machine of the first pool that has one with a load of at most `most`."""
        pools = (self._pure(own), sorted(self.mixed), self._pure(other))
        for pool in filter(None, pools):
            best = min(pool, key=lambda i: (load(i), i))
            if load(best) <= most:
                if pool is pools[2]:
                    self.mixed.add(best)
                return best
        return min(pools[0] or own, key=lambda i: (load(i), i))

    def _pure(self, pool: range) -> list[int]:
        return [i for i in pool if i not in self.mixed]

    def _memory(self, i: int) -> int:
        return sum(self.promised[i].values())
