"""Convert a Request to a Job."""
