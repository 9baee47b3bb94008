"""Times of a run without events: a second implementation beside the machine."""
