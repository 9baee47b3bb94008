"""Import of stage times measured by other tools, as a CSV file with its scenario."""
