"""Predicted against measured on published measurements: see `study`."""
