"""What a profile says of limits, in a scenario that leaves them open."""

from __future__ import annotations

from msgspec import structs

from batchwright.errors import InputError
from batchwright.profile import Profile
from batchwright.scenario.keys import Scenario


def with_limits(scenario: Scenario, profile: Profile | None) -> tuple[Scenario, list[str]]:
    """The limits of the measured server, where the scenario leaves them open, and a note on each."""
    limits = {} if profile is None else dict(profile.limits)
    defaults = {field.name: field.default for field in structs.fields(Scenario)}
    is_open = {name: getattr(scenario, name) == defaults[name] for name in limits}
    if is_open.get("num_gpu_blocks_override") and not is_open.get("block_size", True):
        _check_block_size(scenario, limits)
    taken = {name: value for name, value in limits.items() if is_open[name] and value != defaults[name]}
    notes = [f"{name} is {value}, that of the profile" for name, value in taken.items()]
    return structs.replace(scenario, **taken), notes


def _check_block_size(scenario: Scenario, limits: dict[str, int]) -> None:
    """Raises InputError if the blocks of a profile are of another size than the scenario wants."""
    if scenario.block_size != limits["block_size"]:
        raise InputError(
            f"--block-size is {scenario.block_size}, but the {limits['num_gpu_blocks_override']} KV blocks "
            f"of the profile are of {limits['block_size']}; give --num-gpu-blocks-override too"
        )
