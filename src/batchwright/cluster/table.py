"""What is compared, by its text: a policy on one server, or a cluster such as `replicas(n=4)`."""

from __future__ import annotations

import re
from typing import Any, Final, Protocol, runtime_checkable

from batchwright.cluster.cluster import Cluster
from batchwright.cluster.distserve import DistServe
from batchwright.cluster.replicas import Replicas
from batchwright.cluster.splitwise import Splitwise
from batchwright.cost import CostModel
from batchwright.limits import Limits
from batchwright.policies import POLICIES
from batchwright.policies.text import read, read_list

CLUSTERS: Final[dict[str, type]] = {"replicas": Replicas, "distserve": DistServe, "splitwise": Splitwise}
_NAME: Final = re.compile(r"\s*([\w-]*)")


@runtime_checkable
class MakesCluster(Protocol):
    """What is served by several simulators under one cost and the same limits."""

    def cluster(self, cost: CostModel, limits: Limits) -> Cluster: ...


def servers(text: str) -> dict[str, Any]:
    """The policies and clusters of a comma-separated list, by their text.  Raises InputError."""
    return read_list(text, server)


def server(text: str) -> Any:
    """The policy or cluster of one text.  Raises InputError."""
    name = _NAME.match(text)
    known = name is not None and name[1].lower() in POLICIES
    return read(text, POLICIES if known else {**POLICIES, **CLUSTERS})
