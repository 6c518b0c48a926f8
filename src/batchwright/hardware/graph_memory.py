"""How much vLLM sets aside for CUDA graphs, from version 0.21 on.

It captures two graphs and takes the rest to be like the second, so the estimate grows with their number:
sizes 1, 2, 4, then every 8th up to 256 and every 16th up to min(2 max_num_seqs, 512), for steps with
prompts; and those up to max_num_seqs once more for decodes alone.

Source: vLLM 0.32, `gpu_model_runner.py`; 7 MiB a graph is what logs of Qwen models of 4 and 7 billion
parameters print (0.37 GiB for 54 graphs, 0.63 and 0.64 for 86); others have 3 to 9.
"""

from __future__ import annotations

from typing import Final

GRAPH_BYTES: Final = 7 << 20
LARGEST: Final = 512


def num_graphs(max_num_seqs: int) -> int:
    """As many graphs as vLLM captures by default."""
    mixed = capture_sizes(min(2 * max_num_seqs, LARGEST))
    return len(mixed) + sum(size <= max_num_seqs for size in mixed)


def capture_sizes(most: int) -> list[int]:
    """Tokens of the graphs that are captured by default, up to `most`.  Source: vLLM 0.19 and 0.32."""
    return [size for size in (1, 2, 4, *range(8, 256, 8), *range(256, most + 1, 16)) if size <= most]


def graph_bytes(max_num_seqs: int) -> int:
    """The estimate, in bytes per GPU."""
    return num_graphs(max_num_seqs) * GRAPH_BYTES
