"""What knows nothing of IPUs: errors, units, files, tables, words."""
