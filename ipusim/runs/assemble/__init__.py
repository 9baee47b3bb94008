"""From a Request to a Job."""
