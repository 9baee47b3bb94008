"""The simulated machine: the only code that knows SimPy."""
