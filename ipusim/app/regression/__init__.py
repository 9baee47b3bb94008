"""Pins: the recorded results of a scenario's run, and the first difference of another run from them."""
