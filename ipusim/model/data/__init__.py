"""Samples: datasets of files, made and built-in ones, and the feeds that take micro-batches from them."""
