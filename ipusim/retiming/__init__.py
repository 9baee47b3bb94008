"""Times of a run from Plan and Costs, without events: a second implementation beside the machine."""
