"""Times of the routed experts of one layer: `moe.csv`.

Rows are by tokens and by distinct experts that they use.  A file with a column `ep` was measured once
for every number of ranks that experts may be spread over, with all tokens sent to each rank; one
without was measured with all experts on one GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from batchwright.layer_profile.surface import Surface, filled
from batchwright.layer_profile.table import counts, read_table, seconds


@dataclass(frozen=True, eq=False)
class ExpertFile:
    """Seconds over (tokens, distinct experts), by number of ranks; 0 ranks: a file without `ep`."""

    by_ranks: dict[int, Surface]

    def of(self, ranks: int) -> tuple[Surface, bool]:
        """The times to use for so many ranks, and whether their tokens are those of all ranks."""
        if ranks in self.by_ranks:
            return self.by_ranks[ranks], True
        one = self.by_ranks.get(0) or self.by_ranks[min(self.by_ranks)]
        return one, False


def read_experts(path: Path) -> ExpertFile:
    """Raises InputError."""
    table = read_table(path, ("tokens", "activated_experts", "time_us"))
    keys = np.stack([counts(path, table, name, 1) for name in ("tokens", "activated_experts")], axis=1)
    times = seconds(path, table)
    ranks = counts(path, table, "ep", 1) if "ep" in table else np.zeros(len(times), np.int64)
    return ExpertFile(
        {int(ep): filled(path, keys[ranks == ep], times[ranks == ep]) for ep in np.unique(ranks)}
    )
