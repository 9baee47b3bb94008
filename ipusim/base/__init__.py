"""The parts that know nothing of IPUs: errors, units, files, tables, words."""
