"""Requests, runs and comparisons for notebooks; ``import ipusim`` offers them."""
