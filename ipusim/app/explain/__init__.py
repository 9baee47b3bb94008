"""Why an execution takes its time, and what a change would give."""
