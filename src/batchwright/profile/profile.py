"""What a profile says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from batchwright.cost import Cost
from batchwright.cost_text import cost as cost_of
from batchwright.figures import listed

LIMITS: Final = (
    "num_gpu_blocks_override", "block_size", "max_num_seqs", "max_num_batched_tokens", "max_model_len",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A calibrated server.

    cost         the text of a cost model, as `--cost` takes it
    limits       of the server that was measured, under vLLM's names; those of `LIMITS` that are known
    provenance   where it comes from: `made_by`, `sources` (a text each), and what else there is to say
    range        by feature of a step, the least and the greatest that was measured
    error        by kind, such as `held_out`: relative errors by name
    kept         parameters that the measurements did not determine, with the reason
    is_edited    was the file changed after it was written?
    """

    name: str
    cost: str
    limits: Mapping[str, int] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    range: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    error: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    is_edited: bool = False

    def model(self) -> Cost:
        """The cost model.  Raises InputError or CostError if its text describes none."""
        return cost_of(self.cost)

    def notes(self) -> Iterator[str]:
        """What is to be known before its numbers are believed, a line each."""
        yield f"cost is that of profile {self.name}{self._origin()}"
        held_out = self.error.get("held_out", {})
        if held_out:
            parts = [f"{name.replace('_', ' ')} {value:+.1%}" if name == "total" else
                     f"{name.replace('_', ' ')} {value:.1%}" for name, value in held_out.items()]  # fmt: skip
            yield f"its error on measurements that it was not fitted to: {listed(parts)}"
        if self.kept:
            yield f"the measurements did not determine {'; '.join(self.kept)}"
        if self.is_edited:
            yield "the profile was edited since it was fitted: its error and range are of what it said then"

    def _origin(self) -> str:
        made, sources = self.provenance.get("made_by"), self.provenance.get("sources", [])
        of = f" from {listed([str(source) for source in sources])}" if sources else ""
        return f", made by {made}{of}" if made else of
