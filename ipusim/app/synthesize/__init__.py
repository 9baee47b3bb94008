"""Search for the best Order for a scenario's costs, with a lower bound."""
