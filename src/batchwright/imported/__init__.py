"""What users measured with their own tools, read into one form: see `Imported` and `read`."""

from batchwright.imported.formats import FORMATS, read
from batchwright.imported.result import Finding, Imported

__all__ = ["FORMATS", "Finding", "Imported", "read"]
