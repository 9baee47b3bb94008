"""What a person asks for: run a scenario, compare schedules; each writes its files whole or not at all."""
