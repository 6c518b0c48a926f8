"""Prompts that are computed on one replica and decoded on another: who goes where, and when its KV is there.

    the prompt is complete   a second router says who decodes it; a stand-in keeps its KV
    that replica pulls it    the transfer begins when both ends have time for it: each has one channel
                             out and one in, and serves one transfer after the other
    the transfer has ended   the request decodes, and the stand-in's blocks are free
    nobody can go on         the request that has waited longest to be pulled is computed where it waits

Both ends know the end of a transfer when it begins, and wake up then by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from batchwright.cluster.contract import Router
from batchwright.cluster.replica import Replica
from batchwright.errors import PolicyError
from batchwright.handover import send_off
from batchwright.link import Channel, Link
from batchwright.request import Request


class Handovers:
    """Between `replicas`, over `link`.  `touch`: a replica is to plan anew."""

    def __init__(
        self, replicas: Sequence[Replica], router: Router, link: Link, touch: Callable[[Replica], None]
    ) -> None:
        self.link = link
        self._replicas = replicas
        self._route = router
        self._touch = touch
        self._origins: dict[Request, tuple[Replica, Request]] = {}  # where the KV is, and its stand-in
        self._targets: dict[Request, Replica] = {}  # where it is going
        self.num_lost = 0  # requests that were computed anew because nobody could go on
        self._out = [Channel(link) for _ in replicas]
        self._in = [Channel(link) for _ in replicas]
        for replica in replicas:
            replica.is_sought = True
            replica.simulator.hand_over = partial(self._hand_over, replica)
            replica.simulator.batch.movers.fetch = partial(self._fetch, replica)

    @property
    def num_waiting(self) -> int:
        """Requests whose prompt is computed, and that nobody has pulled."""
        return len(self._origins)

    def unstick(self, now: float) -> bool:
        """Nothing can happen: let the first that waits to be pulled be computed anew; False if none does.

        Machines that compute prompts and decode may wait for each other's memory.
        """
        r = next(iter(self._origins), None)
        if r is None:
            return False
        self.num_lost += 1
        source, stand_in = self._origins.pop(r)
        target = self._targets.pop(r)
        source.simulator.frees(stand_in, now)
        target.simulator.recomputes(r, now)
        self._touch(source)
        self._touch(target)
        return True

    def _hand_over(self, source: Replica, r: Request) -> bool:
        """The prompt of `r` is complete at `source`; does it decode elsewhere?"""
        if r.generated > 1:  # it was preempted while it decoded, and stays
            return False
        index = self._route(r, self._replicas)
        if not isinstance(index, int) or not 0 <= index < len(self._replicas):
            raise PolicyError(
                f"the router sends request {r.id} to decode at replica {index!r}, but they are 0 to "
                f"{len(self._replicas) - 1}; return one of these"
            )
        target = self._replicas[index]
        if target is source:
            return False
        stand_in = send_off(source.simulator.batch, r)
        self._origins[r] = source, stand_in
        self._targets[r] = target
        target.offer(r, stand_in.computed)
        self._touch(target)
        return True

    def _fetch(self, target: Replica, r: Request) -> tuple[float, float]:
        """`target` pulls `r`: begin and end of the transfer."""
        source, stand_in = self._origins.pop(r)
        del self._targets[r]
        out, into = self._out[source.index], self._in[target.index]
        batch = target.simulator.batch
        tokens = batch.blocks.count(stand_in.computed) * batch.blocks.block_size
        begin, end = out.send(max(batch.now, into.free_at), tokens)
        into.free_at = end
        source.simulator.frees(stand_in, end)
        self._touch(source)
        return begin, end
