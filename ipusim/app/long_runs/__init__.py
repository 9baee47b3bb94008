"""Days of training with failures: what checkpoints, lost work and restarts leave of the time, and the best period."""
