"""Schedules held against what is published of them: printed values, rankings and closed forms."""
