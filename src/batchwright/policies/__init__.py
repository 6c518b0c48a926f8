"""Batching policies: plain callables that edit the batch before each step.

One file per engine, one line in `POLICIES` per policy; `policy` reads the text form.
"""

from batchwright.policies.dynamic import Dynamic
from batchwright.policies.orca import Orca
from batchwright.policies.static import AUTO, Static
from batchwright.policies.table import POLICIES, policies, policy
from batchwright.policies.vllm import Vllm

__all__ = ["AUTO", "POLICIES", "Dynamic", "Orca", "Static", "Vllm", "policies", "policy"]
