"""GPUs and models: what the roofline and the KV cache need to know of them."""

from batchwright.hardware.batch_limits import BatchLimits, batch_limits
from batchwright.hardware.blocks import num_kv_blocks
from batchwright.hardware.config import find_model, read_model
from batchwright.hardware.engine import Engine, find_engine
from batchwright.hardware.gpus import GPUS, Gpu, find_gpu
from batchwright.hardware.kv import kv_bytes_per_token
from batchwright.hardware.memory import Memory, Serving, memory
from batchwright.hardware.models import MODELS, Model
from batchwright.hardware.profile_run import ProfileRun, profile_run
from batchwright.hardware.roofline import Coefficients, coefficients
from batchwright.hardware.split import check_split, check_tp, weight_bytes
from batchwright.hardware.spread import Spread, spread

__all__ = [
    "GPUS",
    "MODELS",
    "BatchLimits",
    "Coefficients",
    "Engine",
    "Gpu",
    "Memory",
    "Model",
    "ProfileRun",
    "Serving",
    "Spread",
    "batch_limits",
    "check_split",
    "check_tp",
    "coefficients",
    "find_engine",
    "find_gpu",
    "find_model",
    "kv_bytes_per_token",
    "memory",
    "num_kv_blocks",
    "profile_run",
    "read_model",
    "spread",
    "weight_bytes",
]
