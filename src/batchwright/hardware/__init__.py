"""GPUs and models: what the roofline and the KV cache need to know of them."""

from batchwright.hardware.config import find_model, read_model
from batchwright.hardware.gpus import GPUS, Gpu, find_gpu
from batchwright.hardware.kv import kv_bytes_per_token, num_kv_blocks, reserved_bytes
from batchwright.hardware.models import MODELS, Model
from batchwright.hardware.roofline import Coefficients, coefficients
from batchwright.hardware.split import check_split, check_tp, weight_bytes
from batchwright.hardware.spread import Spread, spread

__all__ = [
    "GPUS",
    "MODELS",
    "Coefficients",
    "Gpu",
    "Model",
    "Spread",
    "check_split",
    "check_tp",
    "coefficients",
    "find_gpu",
    "find_model",
    "kv_bytes_per_token",
    "num_kv_blocks",
    "read_model",
    "reserved_bytes",
    "spread",
    "weight_bytes",
]
