"""Policies by name, and their text form: `static(batch_size=32),dynamic(window=0.25),vllm@0.19`.

The same text works on the command line, in YAML and in Python (`text` says how it is written).
"""

from __future__ import annotations

from typing import Any, Final

from batchwright.policies.dynamic import Dynamic
from batchwright.policies.lightllm import Lightllm
from batchwright.policies.lmdeploy import Lmdeploy
from batchwright.policies.orca import Orca
from batchwright.policies.ordered import Ordered
from batchwright.policies.sarathi import Sarathi
from batchwright.policies.sglang import Sglang
from batchwright.policies.static import Static
from batchwright.policies.tensorrt_llm import TensorrtLlm
from batchwright.policies.text import read, read_list
from batchwright.policies.tgi import Tgi
from batchwright.policies.vllm import Vllm
from batchwright.policies.vllm_v0 import VllmV0

POLICIES: Final[dict[str, type]] = {
    "static": Static,
    "dynamic": Dynamic,
    "orca": Orca,
    "vllm": Vllm,
    "continuous": Vllm,
    "vllm_v0": VllmV0,
    "sarathi": Sarathi,
    "tensorrt_llm": TensorrtLlm,
    "sglang": Sglang,
    "tgi": Tgi,
    "lightllm": Lightllm,
    "lmdeploy": Lmdeploy,
    "ordered": Ordered,
}


def policies(text: str) -> dict[str, Any]:
    """The policies of a comma-separated list, by their text.  Raises InputError."""
    return read_list(text, policy)


def policy(text: str) -> Any:
    """The policy of one text such as `vllm@0.19(max_num_seqs=64)`.  Raises InputError."""
    return read(text, POLICIES)
