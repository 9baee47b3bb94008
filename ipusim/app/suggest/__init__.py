"""Search for the best legal plan of a model on a system by branch and bound, and simulate the result."""
