"""A scenario with other values for some of its options, over and over: what to vary, and what that comes to."""
