"""Pins: what a scenario's run came to, kept beside it, and the first thing in which another run differs from that."""
