"""What a run did: everything is made from its log, in arrays, when it is asked for.

    run        one policy on one workload; the difference of two
    replicated the same on several replicas
    timeline   when everything happened           counts    who waits and who runs, over time
    pricing    the times inside quiet stretches   gaps      between tokens
    ticks      the second of every token          phases    what a request does in every step
    state      of the servers: batch, KV blocks
    estimates, summary, slots, saturation, fairness, windows    numbers
"""

from batchwright.run.replicated import ReplicatedRun as ReplicatedRun
from batchwright.run.run import Run as Run
from batchwright.run.run import RunDifference as RunDifference
from batchwright.run.run import metric_name as metric_name
from batchwright.run.run import paired as paired
