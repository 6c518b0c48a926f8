"""`batchwright gpus` and `batchwright models`: what is known of each by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

from batchwright.cli.screen import screen
from batchwright.hardware import GPUS, MODELS, Gpu, Model, find_gpu, find_model, kv_bytes_per_token
from batchwright.hardware.gpu import GIB
from batchwright.plain_table import plain_table, table_text

Columns = dict[str, Callable[[Any], str]]  # what stands under each title
JsonOf = Callable[[Any], dict[str, Any]]


def gpus(names: list[str], as_json: bool) -> None:
    """Print a table of these GPUs; none: of all.  Raises InputError on an unknown one."""
    found = [find_gpu(name) for name in names] or list(GPUS.values())
    _show("gpus", found, [_RATES, _LINKS], gpu_as_json, as_json)


def models(names: list[str], as_json: bool) -> None:
    """Print tables of these models, by name or config.json; none: of all.  Raises InputError."""
    found = [find_model(name) for name in names] or list(MODELS.values())
    _show("models", found, [_SIZES, _CACHES], model_as_json, as_json)


def _show(kind: str, found: list[Any], tables: list[Columns], json_of: JsonOf, as_json: bool) -> None:
    if as_json:
        print(json.dumps({kind: {each.name: json_of(each) for each in found}}, indent=2))
        return
    console = screen()
    for columns in tables:
        console.print(_table(found, columns, console.width))
        console.print()


def _table(found: Iterable[Any], columns: Columns, width: int) -> str:
    table = plain_table(show_lines=False)
    for title in columns:
        is_text = title in ("", "in", "source")
        justify: Literal["left", "right"] = "left" if is_text else "right"
        table.add_column(title, overflow="fold", no_wrap=title == "", justify=justify)
    for each in found:
        table.add_row(*(cell(each) for cell in columns.values()))
    return table_text(table, width)


def _scaled(value: float | None, unit: float) -> str:
    return "-" if value is None else f"{value / unit:,.4g}"


_RATES: Final[Columns] = {
    "": lambda gpu: gpu.name,
    "memory, GiB": lambda gpu: f"{gpu.memory_bytes / GIB:.1f}",
    "TB/s": lambda gpu: _scaled(gpu.bandwidth, 1e12),
    "16-bit TFLOP/s": lambda gpu: _scaled(gpu.flops, 1e12),
    "fp8": lambda gpu: _scaled(gpu.fp8_flops, 1e12),
    "int8": lambda gpu: _scaled(gpu.int8_flops, 1e12),
    "fp4": lambda gpu: _scaled(gpu.fp4_flops, 1e12),
    "32-bit": lambda gpu: _scaled(gpu.fp32_flops, 1e12),
}
_LINKS: Final[Columns] = {
    "": lambda gpu: gpu.name,
    "link, GB/s": lambda gpu: _scaled(gpu.link, 1e9),
    "host link": lambda gpu: _scaled(gpu.host_link, 1e9),
    "source": lambda gpu: gpu.source,
}
_SIZES: Final[Columns] = {
    "": lambda model: model.name,
    "parameters, 10^9": lambda model: f"{model.parameters / 1e9:.2f}",
    "active": lambda model: f"{model.active_parameters / 1e9:.2f}",
    "weights, GiB": lambda model: f"{model.weight_bytes / GIB:.1f}",
    "in": lambda model: _format(model),
}
_CACHES: Final[Columns] = {
    "": lambda model: model.name,
    "KV bytes per token": lambda model: f"{kv_bytes_per_token(model):,}",
    "window in layers": lambda model: _window(model),
    "longest sequence": lambda model: f"{model.max_position_embeddings:,}",
}


def _format(model: Model) -> str:
    return model.dtype if model.quantization is None else model.quantization.method


def _window(model: Model) -> str:
    return f"{model.window:,} in {model.window_layers}/{model.layers}" if model.window_layers else "-"


def gpu_as_json(gpu: Gpu) -> dict[str, Any]:
    """The figures, with units in the names."""
    return {
        "memory_bytes": gpu.memory_bytes,
        "bandwidth_bytes_per_s": gpu.bandwidth,
        "flops_16_bit_per_s": gpu.flops,
        "flops_fp8_per_s": gpu.fp8_flops,
        "flops_int8_per_s": gpu.int8_flops,
        "flops_fp4_per_s": gpu.fp4_flops,
        "flops_32_bit_per_s": gpu.fp32_flops,
        "link_bytes_per_s": gpu.link,
        "host_link_bytes_per_s": gpu.host_link,
        "is_switched": gpu.switched,
        "has_bfloat16": gpu.has_bfloat16,
        "source": gpu.source,
    }


def model_as_json(model: Model) -> dict[str, Any]:
    """Its sizes, with units in the names."""
    return {
        "num_parameters": model.parameters,
        "num_active_parameters": model.active_parameters,
        "weights_bytes": model.weight_bytes,
        "stored_in": _format(model),
        "kv_bytes_per_token": kv_bytes_per_token(model),
        "num_layers": model.layers,
        "num_window_layers": model.window_layers,
        "window_tokens": model.window if model.window_layers else None,
        "max_position_embeddings": model.max_position_embeddings,
        "num_experts": model.experts if model.moe_layers else None,
        "num_active_experts": model.active_experts if model.moe_layers else None,
        "has_latent_attention": model.latent is not None,
        "source": model.source,
    }
