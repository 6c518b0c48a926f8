"""GPUs and models: what the roofline and the KV cache need to know of them."""

from batchwright.hardware.config import find_model, read_model
from batchwright.hardware.gpus import GPUS, Gpu, find_gpu
from batchwright.hardware.kv import check_tp, kv_bytes_per_token, num_kv_blocks, reserved_bytes
from batchwright.hardware.models import MODELS, Model
from batchwright.hardware.roofline import Coefficients, coefficients

__all__ = [
    "GPUS",
    "MODELS",
    "Coefficients",
    "Gpu",
    "Model",
    "check_tp",
    "coefficients",
    "find_gpu",
    "find_model",
    "kv_bytes_per_token",
    "num_kv_blocks",
    "read_model",
    "reserved_bytes",
]
