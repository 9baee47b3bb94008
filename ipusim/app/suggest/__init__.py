"""The best legal plan for a model on a system, found by branch and bound and proven by simulation."""
