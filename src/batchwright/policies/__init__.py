"""Batching policies: plain callables that edit the batch before each step.

One file per engine, one line in `POLICIES` per policy; `policy` reads the text form.
"""

from batchwright.policies.deadline import Edf
from batchwright.policies.dynamic import Dynamic
from batchwright.policies.fair import Vtc
from batchwright.policies.longest_prefix import Lpm
from batchwright.policies.orca import Orca
from batchwright.policies.ordered import ORDERS, Fcfs, Ordered, Priority
from batchwright.policies.shortest import Sjf, Srpt
from batchwright.policies.static import AUTO, Static
from batchwright.policies.table import POLICIES, policies, policy
from batchwright.policies.vllm import Vllm

__all__ = [
    "AUTO", "ORDERS", "POLICIES", "Dynamic", "Edf", "Fcfs", "Lpm", "Orca", "Ordered", "Priority", "Sjf",
    "Srpt", "Static", "Vllm", "Vtc", "policies", "policy",
]  # fmt: skip
