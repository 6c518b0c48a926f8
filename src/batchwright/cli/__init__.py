"""The command `batchwright`: one line for every error, exit 2; interrupted, exit 130."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

from batchwright.errors import BatchwrightError

BAD_INPUT = 2
INTERRUPTED = 130
LONGEST = 1000  # characters of an error; the middle of a longer one is left out


def main() -> None:
    """Run the command with the arguments of the process."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        from batchwright.cli.app import run  # here, so that an interruption of it is told as one

        status = run(sys.argv[1:])
        if sys.stdout is not None:
            sys.stdout.flush()
    except BatchwrightError as error:
        _say(str(error))
        status = BAD_INPUT
    except KeyboardInterrupt:
        exec("")  # if a text that was executed was interrupted, Python would end by the signal, not by 130
        _say("interrupted; nothing was written")
        status = INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    except OSError as error:
        status = _no_file(error)
    except MemoryError:
        _say("there is not enough memory for this; take fewer requests (--requests), repeats or tokens")
        status = BAD_INPUT
    except RecursionError:
        _say("the input is nested too deeply; take a text or file with fewer levels")
        status = BAD_INPUT
    sys.exit(status)


def _no_file(error: OSError) -> int:
    """The exit status, after a line about the file or, if the error names none, the output."""
    if error.filename is not None:
        _say(f"{os.fsdecode(error.filename)}: cannot be used ({error.strerror}); give another place")
        return BAD_INPUT
    _say(f"the output cannot be written ({error.strerror})")
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _say(message: str) -> None:
    line = " ".join(message.split())
    if len(line) > LONGEST:
        line = f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"
    print(f"batchwright: {line}", file=sys.stderr)
