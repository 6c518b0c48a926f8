"""Step times from operators that were measured on real GPUs, by a package that the user installs.

    tables = measured(gpu="h100_sxm", model="llama-3.1-8b")

asks the package on a grid of steps once, and keeps the answers as a `Table`.
"""

from batchwright.operators.measured import measured
from batchwright.operators.notes import notes_of

__all__ = ["measured", "notes_of"]
