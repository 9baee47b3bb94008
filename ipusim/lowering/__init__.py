"""Lowering of an Order to a Plan in every sync mode."""
