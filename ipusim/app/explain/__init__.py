"""Explain the time of an execution, and the effect of changes."""
