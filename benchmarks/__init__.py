"""Speed ratios: `python -m benchmarks --help`."""
