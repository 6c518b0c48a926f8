"""Find the parameters of a cost model from measurements: see `timings`."""
