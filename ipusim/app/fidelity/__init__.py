"""Comparison of the simulator with published and measured figures, and fits of rates to them."""
