"""Pins: recorded results of a scenario's run, and the first difference of a later run."""
