"""Layer times measured inside vLLM, from a folder: see `layers`."""

from batchwright.layer_profile.build import GRAPHS, layers
from batchwright.layer_profile.folder import Profile, read_profile

__all__ = ["GRAPHS", "Profile", "layers", "read_profile"]
