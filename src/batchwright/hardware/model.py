"""The shape of a decoder model, and its parameters and bytes.

A layer is attention (query, key, value, output) and a gated feed-forward network of three
matrices, or a router with `experts` such networks of which every token uses `active_experts`:

    attention = 2 d h d_h + 2 d h_kv d_h        feed-forward = 3 d d_ff

With latent attention (MLA) keys and values are made of one vector of `kv_rank` + `rope_dim` numbers
per token and layer, which is all that is cached:

    attention = d r_q + r_q h (d_n + d_r)  +  d (r_kv + d_r) + r_kv h (d_n + d_v)  +  h d_v d

Prompts attend with the keys and values made of it, 2 h (d_n + d_r + d_v) FLOPs a pair of query and key;
decodes with the vector itself, 2 h (2 r_kv + d_r), as vLLM does.  Source: DeepSeek-V2 (arXiv 2405.04434).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from batchwright.errors import InputError
from batchwright.hardware.quantization import Quantization

DTYPE_BYTES: Final = {"bfloat16": 2, "float16": 2, "float32": 4}
KV_BYTES: Final = {"fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "bfloat16": 2, "float16": 2}  # of --kv-cache-dtype


@dataclass(frozen=True, kw_only=True)
class Latent:
    """Multi-head latent attention.  Widths of the cached vector, of keys and of values; 0: no query rank."""

    kv_rank: int
    rope_dim: int
    nope_dim: int
    value_dim: int
    query_rank: int = 0

    @property
    def width(self) -> int:
        """Numbers that one token leaves in a layer."""
        return self.kv_rank + self.rope_dim


@dataclass(frozen=True, kw_only=True)
class Model:
    """A decoder, dense or with experts, as it is served.  Raises InputError on a shape that cannot be.

    kv_heads             key and value heads; fewer than `heads` with grouped queries, 1 with `latent`
    head_dim             of queries and keys
    latent               latent attention (MLA), if it is that
    window               tokens, itself included, that a token sees in the windowed layers; 0: all
    window_layers        layers with that window; the others see all
    intermediate         width of a dense layer's feed-forward network
    moe_layers           layers with experts; the others are dense
    moe_intermediate     width of one expert
    shared_intermediate  width of the expert that every token uses; 0: none
    shared_gate          that expert has a gate
    more_per_layer       parameters of a layer beside matrices, two norms, and the biases and norms of
                         `qkv_bias` and `qk_norm`: further norms and biases, attention sinks
    more_per_moe_layer   and of one with experts, beside its router
    more                 and of the model, beside its last norm
    side_parameters      in memory, but not used for text: a vision tower
    quantization         of the matrices in the layers; None: they have `dtype`
    dtype                bfloat16, float16 or float32: embeddings, activations, and what is not quantised
    kv_cache_dtype       auto: that of `dtype`
    from_file            a config.json said it, so its weights are stored as it says
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
    latent: Latent | None = None
    window: int = 0
    window_layers: int = 0
    moe_layers: int = 0
    experts: int = 0
    active_experts: int = 0
    moe_intermediate: int = 0
    shared_intermediate: int = 0
    shared_gate: bool = True
    more_per_layer: int = 0
    more_per_moe_layer: int = 0
    more: int = 0
    side_parameters: int = 0
    quantization: Quantization | None = None
    dtype: str = "bfloat16"
    kv_cache_dtype: str = "auto"
    from_file: bool = False
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
        if not 0 <= self.window_layers <= self.layers:
            self._refuse(f"window_layers {self.window_layers} is outside 0 to layers {self.layers}")
        if self.dtype not in DTYPE_BYTES:
            self._refuse(f"dtype {self.dtype!r} is not one of {', '.join(DTYPE_BYTES)}")
        if self.kv_cache_dtype not in ("auto", *KV_BYTES):
            self._refuse(f"kv_cache_dtype {self.kv_cache_dtype!r} is not one of auto, {', '.join(KV_BYTES)}")

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
        if self.window_layers:
            sizes["window"] = self.window
        if self.latent is not None:
            sizes["kv_rank"], sizes["rope_dim"] = self.latent.kv_rank, self.latent.rope_dim
            sizes["nope_dim"], sizes["value_dim"] = self.latent.nope_dim, self.latent.value_dim
        return sizes

    def _refuse(self, why: str) -> None:
        raise InputError(f"model {self.name}: {why}; correct the shape")

    # parameters

    @property
    def embedding_parameters(self) -> int:
        """The token embedding, which is looked up and never multiplied; the output head has as many."""
        return self.vocab * self.hidden

    @property
    def expert_parameters(self) -> int:
        """The matrices of one expert of one layer."""
        return 3 * self.hidden * self.moe_intermediate

    @property
    def attention_parameters(self) -> int:
        """The matrices of one layer's attention."""
        width, queries = self.hidden, self.heads * self.head_dim
        if self.latent is None:
            return 2 * width * queries + 2 * width * self.kv_heads * self.head_dim
        part, rank = self.latent, self.latent.query_rank
        made = width * rank + rank * queries if rank else width * queries
        up = part.kv_rank * self.heads * (part.nope_dim + part.value_dim)
        return made + width * part.width + up + self.heads * part.value_dim * width

    @property
    def copied_parameters(self) -> int:
        """Of these, what every GPU of a tensor-parallel group holds whole: projections down to latents."""
        if self.latent is None:
            return 0
        return self.hidden * (self.latent.query_rank + self.latent.width)

    @property
    def core_parameters(self) -> int:
        """What every token uses: all but embeddings, output head and routed experts."""
        return self.core_matrices + self.small_parameters

    @property
    def core_matrices(self) -> int:
        """Core weights in matrices, which a quantised model stores in few bits."""
        dense = 3 * self.hidden * self.intermediate
        shared = 3 * self.hidden * self.shared_intermediate
        networks = (self.layers - self.moe_layers) * dense + self.moe_layers * shared
        return self.layers * self.attention_parameters + networks

    @property
    def small_parameters(self) -> int:
        """Norms, biases and routers."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        layer = 2 * self.hidden + self.more_per_layer
        layer += queries + 2 * keys if self.qkv_bias else 0
        layer += 2 * self.head_dim if self.qk_norm else 0
        layer += self.latent.query_rank + self.latent.kv_rank if self.latent is not None else 0
        router = self.hidden * self.experts + self.more_per_moe_layer
        router += self.hidden if self.shared_intermediate and self.shared_gate else 0
        return self.layers * layer + self.moe_layers * router + self.hidden + self.more

    @property
    def parameters(self) -> int:
        """All parameters."""
        tables = self.embedding_parameters * (1 if self.tied_embeddings else 2)
        routed = self.moe_layers * self.experts * self.expert_parameters
        return self.core_parameters + tables + routed + self.side_parameters

    @property
    def active_parameters(self) -> int:
        """Parameters that one token uses, both embeddings counted as in `parameters`."""
        idle = self.moe_layers * (self.experts - self.active_experts) * self.expert_parameters
        return self.parameters - idle - self.side_parameters

    # bytes

    @property
    def dtype_bytes(self) -> int:
        """Bytes of what is not quantised, and of activations."""
        return DTYPE_BYTES[self.dtype]

    @property
    def kv_element_bytes(self) -> int:
        """Bytes of one number in the KV cache."""
        return self.dtype_bytes if self.kv_cache_dtype == "auto" else KV_BYTES[self.kv_cache_dtype]

    @property
    def expert_bytes(self) -> int:
        """Bytes of one expert of one layer."""
        return self._stored(self.expert_parameters, is_expert=True)

    @property
    def core_bytes(self) -> int:
        """Bytes of what every step reads but for the output head."""
        return self._stored(self.core_matrices) + self.small_parameters * self.dtype_bytes

    @property
    def copied_bytes(self) -> int:
        """Bytes of `copied_parameters`, of all layers."""
        return self._stored(self.layers * self.copied_parameters)

    @property
    def table_bytes(self) -> int:
        """Bytes of the embedding, and as many of the output head if it is not tied."""
        return self.embedding_parameters * self.dtype_bytes

    @property
    def side_bytes(self) -> int:
        """Bytes of what text does not use."""
        return self.side_parameters * self.dtype_bytes

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights."""
        tables = self.table_bytes * (1 if self.tied_embeddings else 2)
        routed = self.moe_layers * self.experts * self.expert_bytes
        return self.core_bytes + tables + routed + self.side_bytes

    def _stored(self, weights: int, is_expert: bool = False) -> int:
        """Bytes of so many weights in matrices of the layers."""
        format = self.quantization
        if format is None or (format.experts_only and not is_expert):
            return weights * self.dtype_bytes
        return format.size(weights)

    # arithmetic

    @property
    def plain_arithmetic(self) -> str:
        """In which attention, the output head and what is not quantised compute."""
        return "32-bit" if self.dtype == "float32" else "16-bit"

    def arithmetic(self, is_expert: bool = False) -> str:
        """In which the matrices of the layers compute, or those of experts."""
        format = self.quantization
        if format is None or (format.experts_only and not is_expert) or format.arithmetic == "16-bit":
            return self.plain_arithmetic
        return format.arithmetic

    @property
    def pair_flops(self) -> float:
        """Attention of a prompt, all layers: FLOPs per query and key that it sees."""
        values = self.head_dim if self.latent is None else self.latent.value_dim
        return 2.0 * self.layers * self.heads * (self.head_dim + values)

    @property
    def decode_pair_flops(self) -> float:
        """The same of a decode: latent attention works on the cached vectors."""
        if self.latent is None:
            return self.pair_flops
        return 2.0 * self.layers * self.heads * (self.latent.width + self.latent.kv_rank)

    @property
    def past_flops(self) -> float:
        """FLOPs per KV token that a chunk starts from: latent attention makes its keys and values anew."""
        if self.latent is None:
            return 0.0
        part = self.latent
        return 2.0 * self.layers * self.heads * part.kv_rank * (part.nope_dim + part.value_dim)
