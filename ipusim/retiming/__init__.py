"""Times of a run, computed without event simulation: a second implementation beside the machine."""
