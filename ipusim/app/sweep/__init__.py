"""Sweeps: a scenario simulated with varied options, and the results."""
