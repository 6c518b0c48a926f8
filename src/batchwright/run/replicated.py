"""A run of several replicas: a run of each, and their requests, seats and steps together.

Every request is served by one replica, so columns of requests are those of the replica that had it.
Waiting and seats add up: a seat of one replica is idle while somebody waits if that is anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np

from batchwright.cluster import Cluster
from batchwright.errors import InputError
from batchwright.figures import listed
from batchwright.metrics import Numbers
from batchwright.run.run import Run
from batchwright.run.timeline import Timeline
from batchwright.workload import Workload

REFUSED: Final = -1  # the replica of a request that none has served


class ReplicatedRun(Run):
    """The result of one cluster on one workload.  `replicas`: a run of each, on the whole workload."""

    def __init__(self, name: str, load: Workload, cluster: Cluster) -> None:
        first, *_ = simulators = [replica.simulator for replica in cluster.replicas]
        super().__init__(name, load, first)
        self.arrival = load.arrival_in(cluster.arrived)
        self.replicas = [Run(f"{name} [{i}]", load, one) for i, one in enumerate(simulators)]
        for one in self.replicas:
            one.arrival = self.arrival
        self.seats = sum(one.seats for one in self.replicas)
        self.rejected = [id for one in self.replicas for id in one.rejected]
        self.num_cut = sum(one.num_cut for one in self.replicas)
        self.num_decisions = sum(one.num_decisions for one in self.replicas)
        self.caches = any(one.caches for one in self.replicas)
        blocks = [one.limits.num_kv_blocks for one in self.replicas]
        if len(set(blocks)) > 1:
            self.note = f"{name}: the GPUs of its replicas hold {listed(list(map(str, blocks)))} KV blocks"

    @property
    def parts(self) -> Sequence[Run]:
        """A run for each replica."""
        return self.replicas

    @property
    def timeline(self) -> Timeline:
        """Raises InputError: there is one for each replica."""
        raise InputError(
            f"{self.name}: each of its {len(self.replicas)} replicas has steps of its own, so there is no "
            "one timeline; take that of one in Python, run.replicas[0], or give a policy without replicas"
        )

    @cached_property
    def homes(self) -> Numbers:
        """The replica that served each request, by id; -1: none did."""
        found = np.full(len(self.load), REFUSED)
        for index, one in enumerate(self.replicas):
            found[one.timeline.stays["id"]] = index
        return found

    @cached_property
    def _requests(self) -> dict[str, Numbers]:
        return {"replica": self.homes, **super()._requests}

    def made_steps(self) -> dict[str, Numbers]:
        """One row per step, replica by replica."""
        made = [one.made_steps() for one in self.replicas]
        columns = {name: np.concatenate([steps[name] for steps in made]) for name in made[0]}
        counts = [len(steps["step"]) for steps in made]
        return {"replica": np.repeat(np.arange(len(made)), counts), **columns}
