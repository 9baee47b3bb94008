"""HTML pages of runs, made from run folders."""
