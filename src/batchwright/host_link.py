"""The link between the KV cache and host memory, as the cost of a run knows it."""

from __future__ import annotations

from batchwright.cost import CostModel, memory_of
from batchwright.link import Link


def host_link(cost: CostModel) -> Link | None:
    """Each GPU moves its share of the KV over its own slot; None if `cost` knows no GPU, or not its slot.

    Source: PCI Express, the generation of each GPU's data sheet (`hardware.gpus`).
    """
    device = memory_of(cost)
    if device is None or device.gpu.host_link is None:
        return None
    return Link(bandwidth=device.gpu.host_link, bytes_per_token=device.kv_bytes_per_token)
