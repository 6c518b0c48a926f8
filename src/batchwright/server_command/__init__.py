"""A pasted command line of an inference server as what it means for batching: see `read`."""

from batchwright.server_command.command import ServerCommand, Use, read

__all__ = ["ServerCommand", "Use", "read"]
