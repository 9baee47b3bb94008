"""Planning of a dense product on an IPU's tiles: the fastest split, and the cost of its parts."""
