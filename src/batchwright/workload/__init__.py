"""Workloads: when requests come, and how long they are.

    load = Workload.open("conv.csv")                  a trace, plain or gzipped
    load = Workload.open("chat")                      the built-in load
    load = poisson(1000, rate=5.0, prompt=512, output=128)

The format of a trace is told by its content, never by its name; `formats` has the table.
"""

from batchwright.workload.generated import chat, poisson
from batchwright.workload.load import Workload

__all__ = ["Workload", "chat", "poisson"]
