"""Search for the best Order for one scenario's costs, starting from existing schedules, with a lower bound."""
