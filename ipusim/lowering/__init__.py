"""From an Order to a Plan: one lowering for each sync mode, and passes that add side instructions."""
