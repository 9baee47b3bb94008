"""Pictures, trace files and tables of a Timeline; functions return them and write no file."""
