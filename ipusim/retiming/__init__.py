"""Times of a run computed a second time, from its Plan and its Costs, without events."""
