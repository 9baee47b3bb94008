"""Several runs, compared with each other."""
