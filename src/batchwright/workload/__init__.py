"""Workloads: when requests come, and how long they are.

    load = Workload.open("conv.csv")                  a trace, plain or gzipped
    load = Workload.open("chat")                      a built-in load
    load = Workload.open("poisson(rate=5, prompt=uniform(512, 4096), output=128)")
    load = poisson(1000, rate=5.0, prompt=uniform(512, 4096), output=128)

The format of a trace is told by its content, never by its name; `formats` has the table.  The
texts of loads are in `load_text`, the functions in `generated` and `multi_turn`.
"""

from batchwright.workload.client_models import servegen
from batchwright.workload.generated import (
    article,
    burst,
    chat,
    closed,
    constant,
    diurnal,
    gamma,
    onoff,
    poisson,
    weibull,
)
from batchwright.workload.laws import Empirical as empirical
from batchwright.workload.laws import Exponential as exponential
from batchwright.workload.laws import Geometric as geometric
from batchwright.workload.laws import Lognormal as lognormal
from batchwright.workload.laws import Uniform as uniform
from batchwright.workload.load import Workload
from batchwright.workload.multi_turn import sessions

__all__ = [
    "Workload", "article", "burst", "chat", "closed", "constant", "diurnal", "empirical", "exponential",
    "gamma", "geometric", "lognormal", "onoff", "poisson", "servegen", "sessions", "uniform", "weibull",
]  # fmt: skip
