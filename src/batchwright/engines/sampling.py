"""How the next token is chosen.

Logits over the temperature, then top-k, then top-p, as vLLM orders them, then one draw.  Two
requests with the same prompt, parameters and seed get the same tokens, whatever else is in the batch.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """`top_k` 0 and `top_p` 1 keep all tokens; greedy is no `Sampling` at all.

    Raises InputError on a value that cannot be.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
