"""Validation of schedules against published values, rankings and closed forms."""
