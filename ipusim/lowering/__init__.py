"""Lowering of an Order to a Plan: a lowering per sync mode, and side instructions."""
