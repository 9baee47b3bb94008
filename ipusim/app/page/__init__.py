"""The page of runs in HTML, from their folders."""
