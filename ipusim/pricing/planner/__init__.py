"""Planning of a dense product on the tiles of an IPU: the fastest split, and the cost of its parts."""
