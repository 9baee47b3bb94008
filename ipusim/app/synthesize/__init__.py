"""An Order for the costs of one scenario: searched from the schedules that there are, with a bound beside it."""
