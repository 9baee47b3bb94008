"""Requests, runs and comparisons in plain Python, that show themselves in a notebook; ``import ipusim`` offers them."""
