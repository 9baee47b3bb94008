"""Collectives over IPU-Links: transfers as data, arithmetic on NumPy arrays, and costs."""
