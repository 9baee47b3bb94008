"""The simulator held against published and measured figures, and fitted to them."""
