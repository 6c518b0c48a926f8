"""Batchwright: predict, explain and run the batching policy of an LLM inference server.

    import batchwright as bw
    load = bw.Workload.open("conv.csv", max_tokens=2048)
    cost = bw.Roofline(gpu="H100-SXM", model="llama-3.1-8b", tp=1)
    runs = bw.compare(load, cost, bw.Limits(), {"static": bw.static(32), "vllm": bw.vllm()})
    print(runs.table())

Names are imported when they are first used, so that the command starts at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from batchwright.version import __version__ as __version__

if TYPE_CHECKING:
    from batchwright.batch import Batch
    from batchwright.cluster import Cluster
    from batchwright.cluster import DistServe as distserve
    from batchwright.cluster import Replicas as replicas
    from batchwright.cluster import Splitwise as splitwise
    from batchwright.comparison import Runs, compare
    from batchwright.cost import Constant, Fitted, Hosted, Linear, Roofline
    from batchwright.errors import BatchwrightError
    from batchwright.limits import Limits
    from batchwright.policies import Dynamic as dynamic
    from batchwright.policies import Edf as edf
    from batchwright.policies import Lpm as lpm
    from batchwright.policies import Orca as orca
    from batchwright.policies import Ordered as ordered
    from batchwright.policies import Sjf as sjf
    from batchwright.policies import Srpt as srpt
    from batchwright.policies import Static as static
    from batchwright.policies import Vllm as vllm
    from batchwright.policies import Vtc as vtc
    from batchwright.policies import policy
    from batchwright.request import Request
    from batchwright.run import Run
    from batchwright.simulator import Simulator
    from batchwright.workload import Workload

    continuous = vllm

_PLACES = {
    "Batch": ("batch", "Batch"),
    "BatchwrightError": ("errors", "BatchwrightError"),
    "Cluster": ("cluster", "Cluster"),
    "Constant": ("cost", "Constant"),
    "Fitted": ("cost", "Fitted"),
    "Hosted": ("cost", "Hosted"),
    "Limits": ("limits", "Limits"),
    "Linear": ("cost", "Linear"),
    "Request": ("request", "Request"),
    "Roofline": ("cost", "Roofline"),
    "Run": ("run", "Run"),
    "Runs": ("comparison", "Runs"),
    "Simulator": ("simulator", "Simulator"),
    "Workload": ("workload", "Workload"),
    "compare": ("comparison", "compare"),
    "continuous": ("policies", "Vllm"),
    "distserve": ("cluster", "DistServe"),
    "dynamic": ("policies", "Dynamic"),
    "edf": ("policies", "Edf"),
    "lpm": ("policies", "Lpm"),
    "orca": ("policies", "Orca"),
    "ordered": ("policies", "Ordered"),
    "policy": ("policies", "policy"),
    "replicas": ("cluster", "Replicas"),
    "sjf": ("policies", "Sjf"),
    "splitwise": ("cluster", "Splitwise"),
    "srpt": ("policies", "Srpt"),
    "static": ("policies", "Static"),
    "vllm": ("policies", "Vllm"),
    "vtc": ("policies", "Vtc"),
}
__all__ = [
    "Batch", "BatchwrightError", "Cluster", "Constant", "Fitted", "Hosted", "Limits", "Linear", "Request",
    "Roofline", "Run", "Runs", "Simulator", "Workload", "compare", "continuous", "distserve", "dynamic",
    "edf", "lpm", "orca", "ordered", "policy", "replicas", "sjf", "splitwise", "srpt", "static", "vllm",
    "vtc",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'batchwright' has no attribute {name!r}")
    module, attribute = _PLACES[name]
    return getattr(import_module(f"batchwright.{module}"), attribute)
