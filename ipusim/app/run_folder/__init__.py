"""Folders of results: atomic writing, and reading."""
