"""Published facts about batching, computed again at a small size; docs/published.md shows them."""

from batchwright.published.batched import ALPACA, SHAREGPT, BatchedRow, Dataset, batched_requests
from batchwright.published.caps import CapRow, gain_by_cap
from batchwright.published.equal import EqualRow, gain_by_width
from batchwright.published.opt13b import Opt13b
from batchwright.published.reserve import Reserving
from batchwright.published.spread import SpreadRow, gain_by_spread
from batchwright.published.table import text

__all__ = [
    "ALPACA",
    "SHAREGPT",
    "BatchedRow",
    "CapRow",
    "Dataset",
    "EqualRow",
    "Opt13b",
    "Reserving",
    "SpreadRow",
    "batched_requests",
    "gain_by_cap",
    "gain_by_spread",
    "gain_by_width",
    "text",
]
