"""The longest of B lengths drawn from a load: what a static batch waits for.

    E[max of B] = sum over k of  k (F(k)^B - F(k - 1)^B)        F: the empirical law

exactly, for B independent draws.  Over the mean it is the factor by which the longest row
stretches a batch; 1 - mean / E[max of B] of its slots is then padding.

Source: order statistics; the sum is exact for any law on whole numbers.
"""

from __future__ import annotations

import numpy as np

from batchwright.workload.columns import Ints


def expected_longest(lengths: Ints, batch_size: int) -> float:
    """E[max] of `batch_size` lengths drawn with replacement from `lengths`."""
    values, counts = np.unique(lengths, return_counts=True)
    powers = (np.cumsum(counts) / len(lengths)) ** batch_size
    return float(np.dot(values, np.diff(powers, prepend=0.0)))


def stretch(lengths: Ints, batch_size: int) -> float:
    """E[max of B] over the mean; 1 if all lengths are equal."""
    return expected_longest(lengths, batch_size) / float(lengths.mean())
