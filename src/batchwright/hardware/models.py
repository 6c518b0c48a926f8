"""Shapes of decoder models and their parameter counts.

A layer is attention (query, key, value, output) and a gated feed-forward network of three
matrices, or a router with `experts` such networks of which every token uses `active_experts`:

    attention = 2 d h d_h + 2 d h_kv d_h        feed-forward = 3 d d_ff

Source: the models' public config.json; counts are exact, norms and biases included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from batchwright.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Model:
    """A Llama-like decoder, dense or with experts.  Raises InputError on a shape that cannot be.

    kv_heads             key and value heads; fewer than `heads` with grouped queries
    intermediate         width of a dense layer's feed-forward network
    moe_layers           layers with experts; the others are dense
    moe_intermediate     width of one expert
    shared_intermediate  width of the expert that every token uses; 0: none
    weight_bits          of the matrices in the layers; embeddings and activations have 16
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    max_position_embeddings: int
    tied_embeddings: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    moe_layers: int = 0
    experts: int = 0
    active_experts: int = 0
    moe_intermediate: int = 0
    shared_intermediate: int = 0
    weight_bits: int = 16
    source: str = "config.json of the model"

    def __post_init__(self) -> None:
        for key, value in self._sizes().items():
            if value < 1:
                raise InputError(f"model {self.name}: {key} is {value}, but must be at least 1")
        if self.heads % self.kv_heads:
            self._refuse(f"kv_heads {self.kv_heads} does not divide heads {self.heads}")
        if self.active_experts > self.experts:
            self._refuse(f"active_experts {self.active_experts} is over experts {self.experts}")
        if not 0 <= self.moe_layers <= self.layers:
            self._refuse(f"moe_layers {self.moe_layers} is outside 0 to layers {self.layers}")
        if self.weight_bits not in (4, 8, 16):
            self._refuse(f"weight_bits {self.weight_bits} is not 4, 8 or 16")

    def _sizes(self) -> dict[str, int]:
        """The sizes that must be positive for this kind of model."""
        sizes = {
            "layers": self.layers,
            "hidden": self.hidden,
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "vocab": self.vocab,
            "max_position_embeddings": self.max_position_embeddings,
        }
        if self.moe_layers < self.layers:
            sizes["intermediate"] = self.intermediate
        if self.moe_layers:
            sizes["experts"] = self.experts
            sizes["active_experts"] = self.active_experts
            sizes["moe_intermediate"] = self.moe_intermediate
        return sizes

    def _refuse(self, why: str) -> None:
        raise InputError(f"model {self.name}: {why}; correct the shape")

    @property
    def embedding_parameters(self) -> int:
        """The token embedding, which is looked up and never multiplied; the output head has as many."""
        return self.vocab * self.hidden

    @property
    def expert_parameters(self) -> int:
        """One expert of one layer."""
        return 3 * self.hidden * self.moe_intermediate

    @property
    def core_parameters(self) -> int:
        """What every token uses: all but embeddings, output head and routed experts."""
        return self.core_matrices + self.small_parameters

    @property
    def core_matrices(self) -> int:
        """Core weights in matrices that a quantised model stores in `weight_bits`."""
        width, queries, keys = self.hidden, self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = 2 * width * queries + 2 * width * keys
        dense = 3 * width * self.intermediate
        shared = 3 * width * self.shared_intermediate
        return self.layers * attention + (self.layers - self.moe_layers) * dense + self.moe_layers * shared

    @property
    def small_parameters(self) -> int:
        """Norms, biases and routers."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        layer = 2 * self.hidden
        layer += queries + 2 * keys if self.qkv_bias else 0
        layer += 2 * self.head_dim if self.qk_norm else 0
        router = self.hidden * self.experts + (self.hidden if self.shared_intermediate else 0)
        return self.layers * layer + self.moe_layers * router + self.hidden

    @property
    def parameters(self) -> int:
        """All parameters."""
        tables = self.embedding_parameters * (1 if self.tied_embeddings else 2)
        return self.core_parameters + tables + self.moe_layers * self.experts * self.expert_parameters

    @property
    def active_parameters(self) -> int:
        """Parameters that one token uses, both embeddings counted as in `parameters`."""
        idle = self.moe_layers * (self.experts - self.active_experts) * self.expert_parameters
        return self.parameters - idle

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights."""
        matrices = self.core_matrices + self.moe_layers * self.experts * self.expert_parameters
        return matrices * self.weight_bits // 8 + 2 * (self.parameters - matrices)


_ALL: Final = (
    Model(
        name="llama-3.1-8b", layers=32, hidden=4096, heads=32, kv_heads=8, head_dim=128,
        intermediate=14336, vocab=128256, max_position_embeddings=131072,
        source="config.json of meta-llama/Llama-3.1-8B",
    ),
    Model(
        name="llama-3.1-70b", layers=80, hidden=8192, heads=64, kv_heads=8, head_dim=128,
        intermediate=28672, vocab=128256, max_position_embeddings=131072,
        source="config.json of meta-llama/Llama-3.1-70B",
    ),
    Model(
        name="qwen2.5-7b", layers=28, hidden=3584, heads=28, kv_heads=4, head_dim=128,
        intermediate=18944, vocab=152064, max_position_embeddings=32768, qkv_bias=True,
        source="config.json of Qwen/Qwen2.5-7B-Instruct",
    ),
    Model(
        name="qwen2.5-32b", layers=64, hidden=5120, heads=40, kv_heads=8, head_dim=128,
        intermediate=27648, vocab=152064, max_position_embeddings=32768, qkv_bias=True,
        source="config.json of Qwen/Qwen2.5-32B-Instruct",
    ),
    Model(
        name="qwq-32b", layers=64, hidden=5120, heads=40, kv_heads=8, head_dim=128,
        intermediate=27648, vocab=152064, max_position_embeddings=40960, qkv_bias=True,
        source="config.json of Qwen/QwQ-32B",
    ),
    Model(
        name="qwen3-8b", layers=36, hidden=4096, heads=32, kv_heads=8, head_dim=128,
        intermediate=12288, vocab=151936, max_position_embeddings=40960, qk_norm=True,
        source="config.json of Qwen/Qwen3-8B",
    ),
    Model(
        name="mistral-7b", layers=32, hidden=4096, heads=32, kv_heads=8, head_dim=128,
        intermediate=14336, vocab=32768, max_position_embeddings=32768,
        source="config.json of mistralai/Mistral-7B-v0.3",
    ),
    Model(
        name="mixtral-8x7b", layers=32, hidden=4096, heads=32, kv_heads=8, head_dim=128,
        intermediate=14336, vocab=32000, max_position_embeddings=32768,
        moe_layers=32, experts=8, active_experts=2, moe_intermediate=14336,
        source="config.json of mistralai/Mixtral-8x7B-v0.1",
    ),
    Model(
        name="qwen3-30b-a3b", layers=48, hidden=2048, heads=32, kv_heads=4, head_dim=128,
        intermediate=6144, vocab=151936, max_position_embeddings=40960, qk_norm=True,
        moe_layers=48, experts=128, active_experts=8, moe_intermediate=768,
        source="config.json of Qwen/Qwen3-30B-A3B",
    ),
)  # fmt: skip

MODELS: Final[Mapping[str, Model]] = {model.name: model for model in _ALL}
