"""What is said with every result that rests on measured operators."""

from __future__ import annotations

from batchwright.cost import CostModel, Table, device_of


def notes_of(cost: CostModel) -> list[str]:
    """Package, engine, GPU and model of the tables in `cost`, in a line; empty where it has none."""
    device = device_of(cost)
    if not isinstance(device, Table):
        return []
    told = ", ".join(f"{name.replace('_', ' ')} {text}" for name, text in device.about)
    return [f"step times are measured: {told}", *_memory(device)]


def _memory(table: Table) -> list[str]:
    if table.memory is None:
        return []
    return [f"memory is that of {table.memory.model.name} on {table.memory.tp} x {table.memory.gpu.name}"]
