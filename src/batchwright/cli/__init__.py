"""The command `batchwright`: one line for every error, exit 2; interrupted, exit 130."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

from batchwright.errors import BatchwrightError

BAD_INPUT = 2


def main() -> None:
    """Run the command with the arguments of the process."""
    from batchwright.cli.app import INTERRUPTED, run

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = run(sys.argv[1:])
        if sys.stdout is not None:
            sys.stdout.flush()
    except BatchwrightError as error:
        _say(str(error))
        status = BAD_INPUT
    except KeyboardInterrupt:
        _say("interrupted; nothing was written")
        status = INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    except OSError as error:
        _say(f"the output cannot be written ({error.strerror})")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    sys.exit(status)


def _say(message: str) -> None:
    print(f"batchwright: {' '.join(message.split())}", file=sys.stderr)
