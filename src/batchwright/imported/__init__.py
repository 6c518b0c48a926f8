"""What users measured with their own tools, read into one form: see `Imported`."""

from batchwright.imported.result import Finding, Imported

__all__ = ["Finding", "Imported"]
