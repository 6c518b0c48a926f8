"""Static batching: wait for a full batch, run it until its longest output ends, start the next.

order fcfs · gate the batch is empty and full, or nobody else comes · KV the worst case of
every slot · composition all prompts in one step, then decodes · victim none · leave together

`padded`: every prompt costs as much as the longest of its batch, and a row that has ended is
computed until the batch ends.  Not `streamed`: clients see their tokens when the batch ends.
Source: FasterTransformer and Hugging Face `generate`; the worst-case reservation is that of
Orca (Yu et al., OSDI 2022), section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from batchwright.batch import PAD, STAY, Batch
from batchwright.config import ordinary
from batchwright.contract import Policy
from batchwright.errors import InputError
from batchwright.policies.about import About
from batchwright.policies.check import batch_size, check_bool, check_count
from batchwright.policies.kv import admit_whole, whole_length
from batchwright.request import Request

AUTO: Final = "auto"


@ordinary
@dataclass(frozen=True)
class Static:
    """`batch_size`: requests of one batch; None: 32, or `max_num_seqs` if that is less.

    "auto": the best for the load, which a comparison finds by trying (see `comparison.run`).
    Raises InputError on a value that cannot be.
    """

    about = About(
        engine="FasterTransformer, Hugging Face generate",
        order="first come",
        first="all prompts of a batch, then its decodes",
        chunking="none",
        kv="prompt + max_tokens",
        victim="nobody",
        leave="when the batch ends",
        source="Yu et al., Orca, OSDI 2022, section 4, for the reservation; the defaults are our choice",
        left_out="sorting by length; several batches in flight",
    )
    batch_size: int | str | None = None
    padded: bool = True
    streamed: bool = False

    def __post_init__(self) -> None:
        check_count("static", self, "batch_size", optional=True, word=AUTO)
        check_bool("static", self, "padded")
        check_bool("static", self, "streamed")

    def begin(self, batch: Batch) -> Policy:
        if isinstance(self.batch_size, str):
            raise InputError("static: batch_size auto is found for a load; use compare, or give a number")
        size = batch_size("static", "batch_size", self.batch_size, batch.limits.max_num_seqs)
        batch.max_running = size
        batch.on_end = PAD if self.padded else STAY
        batch.is_streamed = self.streamed
        return StaticRun(size, self.padded)


class StaticRun:
    """Static batching on one batch."""

    def __init__(self, batch_size: int, padded: bool) -> None:
        self.batch_size = batch_size
        self.padded = padded

    def __call__(self, b: Batch) -> None:
        if b.edits > 0 or b.num_decoding > 0:
            return
        for r in list(b.running):  # all have ended
            b.release(r)
        if b.num_waiting >= self.batch_size or (b.draining and b.num_waiting > 0):
            self.start(b)

    def start(self, b: Batch) -> None:
        """Admit the next batch: `batch_size` requests, or as many as the KV cache holds."""
        chosen = self.choose(b)
        longest = max([r.prompt for r in chosen])
        for r in chosen:
            admit_whole(b, r, whole_length(r))
            if self.padded and r.prompt < longest:
                b.pad(r, longest - r.prompt)

    def choose(self, b: Batch) -> list[Request]:
        chosen: list[Request] = []
        free = b.blocks.free
        for r in b.waiting.head(self.batch_size):
            free -= b.blocks.count(whole_length(r))
            if free < 0:
                break
            chosen.append(r)
        return chosen
