"""A user's own Python functions: found in files, called, differentiated by autograd, and counted."""
