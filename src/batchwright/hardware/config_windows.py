"""How many layers of a config.json see only a window of the tokens, and how wide it is.

Newer files list every layer (`layer_types`).  In older ones the family says which layers have the window.
"""

from __future__ import annotations

from typing import Any, Final

from batchwright.hardware.config_keys import Keys

KINDS: Final = ("full_attention", "sliding_attention")


def windows(keys: Keys, kind: str) -> dict[str, Any]:
    """`window` and `window_layers` of a model; none where the window holds the longest sequence."""
    if keys.keys.get("sliding_window") is None or not _is_used(keys, kind):
        return {}
    window, layers = keys.size("sliding_window"), _layers(keys, kind)
    if window >= keys.size("max_position_embeddings") or not layers:
        return {}
    return {"window": window, "window_layers": layers}


def _is_used(keys: Keys, kind: str) -> bool:
    """Qwen files keep the width of a window that `use_sliding_window` turns off."""
    return keys.flag("use_sliding_window", not kind.startswith("qwen"))


def _layers(keys: Keys, kind: str) -> int:
    listed, layers = keys.items("layer_types"), keys.size("num_hidden_layers")
    if listed:
        return _counted(keys, listed, layers)
    if kind.startswith("qwen"):  # the first ones see all
        return max(layers - keys.size_or_none("max_window_layers"), 0)
    if kind in ("gemma2", "gpt_oss"):  # in turn, beginning with a window
        return layers - layers // 2
    if kind.startswith("gemma3"):
        return layers - layers // keys.size("sliding_window_pattern", 6)
    return layers


def _counted(keys: Keys, listed: list[Any], layers: int) -> int:
    other = next((each for each in listed if each not in KINDS), None)
    if other is not None:
        keys.refuse("layer_types", f"has {other!r}, which is not priced here; {' and '.join(KINDS)} are")
    if len(listed) != layers:
        keys.refuse("layer_types", f"lists {len(listed)} layers of {layers}")
    return sum(each == "sliding_attention" for each in listed)
