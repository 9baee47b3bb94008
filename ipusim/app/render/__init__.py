"""Pictures, trace files and tables of a Timeline: figures or rows are returned, nothing is saved."""
