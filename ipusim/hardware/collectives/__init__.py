"""Collectives over IPU-Links: plans as data, their arithmetic on NumPy arrays, and what each costs."""
