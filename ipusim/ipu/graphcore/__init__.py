"""Graphcore's names on TensorFlow's graph: each checks its arguments, and has nodes or a program written.

A module has the name that it has in ``tensorflow.python.ipu``; ``ipusim/ipu/imports/rows.py`` lists them.
"""
