"""GPUs and models: what the roofline and the KV cache need to know of them."""

from batchwright.hardware.batch_limits import BatchLimits, batch_limits
from batchwright.hardware.blocks import num_kv_blocks
from batchwright.hardware.config import find_model, read_model
from batchwright.hardware.engine import Engine, find_engine
from batchwright.hardware.gpu import Gpu
from batchwright.hardware.gpus import GPUS, find_gpu
from batchwright.hardware.kv import kv_bytes, kv_bytes_per_token, window_kv_bytes_per_token
from batchwright.hardware.memory import Memory, Serving, memory
from batchwright.hardware.model import Latent, Model
from batchwright.hardware.models import MODELS
from batchwright.hardware.profile_run import ProfileRun, profile_run
from batchwright.hardware.quantization import METHODS, Quantization
from batchwright.hardware.roofline import Coefficients, coefficients
from batchwright.hardware.served import DTYPES, KV_DTYPES, served
from batchwright.hardware.split import check_split, check_tp, weight_bytes
from batchwright.hardware.spread import Spread, spread

__all__ = [
    "DTYPES",
    "GPUS",
    "KV_DTYPES",
    "METHODS",
    "MODELS",
    "BatchLimits",
    "Coefficients",
    "Engine",
    "Gpu",
    "Latent",
    "Memory",
    "Model",
    "ProfileRun",
    "Quantization",
    "Serving",
    "Spread",
    "batch_limits",
    "check_split",
    "check_tp",
    "coefficients",
    "find_engine",
    "find_gpu",
    "find_model",
    "kv_bytes",
    "kv_bytes_per_token",
    "memory",
    "num_kv_blocks",
    "profile_run",
    "read_model",
    "served",
    "spread",
    "weight_bytes",
    "window_kv_bytes_per_token",
]
