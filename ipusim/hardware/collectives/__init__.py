"""Collectives over IPU-Links: each as data, its arithmetic on NumPy arrays, and what it costs."""
