"""A decoder in OpenVINO IR, as a network whose inputs are the columns of a step."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from batchwright.errors import EngineError, InputError

SUPPORTED: Final = "openvino>=2026.4,<2026.5"
FLAT: Final = MappingProxyType({  # the inputs beside the KV caches: element type, rank
    "input_ids": ("i64", 1),
    "position_ids": ("i64", 1),
    "past_lens": ("i32", 1),
    "subsequence_begins": ("i32", 1),
    "block_indices": ("i32", 1),
    "block_indices_begins": ("i32", 1),
    "max_context_len": ("i32", 0),
})  # fmt: skip
CACHES: Final = ("key_cache.", "value_cache.")
SAMPLES: Final = "sampled_tokens_indices"  # our own input, under the name that OpenVINO GenAI gives it


def paged(ir: Path) -> Any:
    """The network of `ir` with paged attention, and with logits for the sampled rows alone.

    Raises InputError or EngineError if there is none.
    """
    if not ir.is_file():
        raise InputError(f"{ir}: no such file; give the openvino_model.xml of a model in OpenVINO IR")
    try:
        network = ov.Core().read_model(ir)
    except RuntimeError as error:
        raise EngineError(f"{ir}: OpenVINO {ov.__version__} cannot read it ({_last_line(error)})") from None
    _page(network)
    _check_inputs(network)
    _sample_rows(network)
    return network


def compiled(network: Any, properties: dict[str, Any]) -> Any:
    """`network` for the CPU."""
    return ov.Core().compile_model(network, "CPU", properties)


def caches(compiled: Any, num_blocks: int) -> dict[str, Any]:
    """Zeros for the keys and values of each layer, by input: what was never written must be a number."""
    made = {}
    for port in compiled.inputs:
        if port.any_name.startswith(CACHES):
            shape = [num_blocks, *(size.get_length() for size in list(port.partial_shape)[1:])]
            made[port.any_name] = tensor = ov.Tensor(port.element_type, ov.Shape(shape))
            tensor.data[...] = 0
    return made


def _page(network: Any) -> None:
    try:
        from openvino._offline_transformations import paged_attention_transformation

        paged_attention_transformation(network)
    except (ImportError, TypeError, RuntimeError) as error:
        raise _misfit(f"cannot give this model paged attention ({_last_line(error)})") from None


def _check_inputs(network: Any) -> None:
    """Raise EngineError unless the inputs are those that a step is written to."""
    found = {
        port.any_name: (port.element_type.get_type_name(), port.partial_shape.rank.get_length())
        for port in network.inputs
        if not port.any_name.startswith(CACHES)
    }
    if found != FLAT:
        wrong = sorted(name for name in FLAT.keys() | found.keys() if FLAT.get(name) != found.get(name))
        raise _misfit(f"makes a network with other inputs than a step has ({', '.join(wrong)})")


def _sample_rows(network: Any) -> None:
    """Gather the sampled rows in front of the product that makes the logits."""
    node = network.outputs[0].get_node()
    while node.get_type_name() != "MatMul":
        if node.get_input_size() == 0:
            raise _misfit("makes a network whose logits do not end in a matrix product")
        node = node.input_value(0).get_node()
    samples = ops.parameter([-1], np.int64, name=SAMPLES)
    samples.output(0).get_tensor().set_names({SAMPLES})
    rows = ops.gather(node.input_value(0), samples, ops.constant(np.int64(0)))
    node.input(0).replace_source_output(rows.output(0))
    network.add_parameters([samples])
    network.validate_nodes_and_infer_types()


def _misfit(what: str) -> EngineError:
    return EngineError(f"OpenVINO {ov.__version__} {what}; this engine is made for {SUPPORTED}")


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
