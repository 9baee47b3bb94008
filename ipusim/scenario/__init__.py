"""From the text of a YAML scenario to the values that the simulator works on."""
