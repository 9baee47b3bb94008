"""Options of a request, each with its kind, bounds, unit and meaning."""
