"""Import of stage times from other tools, as a CSV file with its scenario."""
