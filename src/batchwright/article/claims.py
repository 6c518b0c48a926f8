"""What the article claims, and the setting that it claims it for.  Nothing here is ours."""

from __future__ import annotations

from typing import Final

CLAIMED_STATIC: Final = 3500.0  # tokens/s; which tokens is not said
CLAIMED_CONTINUOUS: Final = 6800.0
CLAIMED_GAIN: Final = 0.94
CLAIMED_RANGE: Final = (0.80, 1.00)  # "+80 to 100%" in general

CLAIMED_SCHEDULING: Final = 0.05e-3  # seconds a step, for a flood of very short requests
CLAIMED_STEP: Final = 0.5e-3  # seconds of the decode step that it is compared with
CLAIMED_SHARE: Final = 0.10
CLAIMED_SHORT: Final = 32  # the longest output of such a flood

REQUESTS: Final = 100  # all there at the start
BATCH: Final = 32
STEP: Final = 0.025  # seconds
PROMPT: Final = (512, 4096)  # tokens, every length alike
OUTPUT: Final = (64, 512)
