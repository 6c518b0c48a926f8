"""A fitted cost model as a file: what it costs, where from, how well it fits, and where it holds."""

from batchwright.profile.beyond import beyond
from batchwright.profile.profile import LIMITS, Profile
from batchwright.profile.text import as_text, read

__all__ = ["LIMITS", "Profile", "as_text", "beyond", "read"]
