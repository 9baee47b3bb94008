"""Modules independent of IPUs: errors, units, files, tables, words."""
