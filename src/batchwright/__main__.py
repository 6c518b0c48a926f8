"""`python -m batchwright` is the command `batchwright`."""

from batchwright.cli import main

main()
