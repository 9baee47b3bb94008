"""Pipeline schedules: each is a function from a program's shape to a Plan, found by name in the registry."""
