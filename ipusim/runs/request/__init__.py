"""What is asked for: options, each with its kind, bounds, unit and meaning."""
