"""The version of vLLM that counts the KV blocks which all policies of a comparison get."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from batchwright.cluster.replicas import Replicas
from batchwright.policies import Vllm


def counting_engine(policies: Iterable[Any]) -> str | None:
    """`vllm@0.19` where all policies that name a version of vLLM name this one; None: the latest.

    Replicas on GPUs of their own count by the latest, and so does what is compared with them.
    """
    versions = set()
    for policy in policies:
        one = policy.policy if isinstance(policy, Replicas) else policy
        if isinstance(policy, Replicas) and policy.gpus is not None:
            return None
        if isinstance(one, Vllm):
            versions.add(one.version)
    return f"vllm@{versions.pop()}" if len(versions) == 1 else None
