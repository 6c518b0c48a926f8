"""Replicas of a server behind one router, on one virtual clock.

    events     what happens, in order of time, kind and number
    replica    one simulator, and what a router may know of it
    routers    who gets a request: `ROUTERS` by name
    cluster    the loop over events
    replicas   replicas of one policy, as they are compared; `table` has them by name
    handovers  prompts on some replicas, decodes on others: `distserve`, `splitwise`
"""

from batchwright.cluster.cluster import Cluster as Cluster
from batchwright.cluster.counting import counting_engine as counting_engine
from batchwright.cluster.distserve import DistServe as DistServe
from batchwright.cluster.replica import Replica as Replica
from batchwright.cluster.replicas import Replicas as Replicas
from batchwright.cluster.routers import ROUTERS as ROUTERS
from batchwright.cluster.splitwise import Splitwise as Splitwise
from batchwright.cluster.table import CLUSTERS as CLUSTERS
from batchwright.cluster.table import MakesCluster as MakesCluster
from batchwright.cluster.table import server as server
from batchwright.cluster.table import servers as servers
