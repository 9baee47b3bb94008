"""Whole programs: file, host processes, profile, and conversion to a scenario."""
