"""Implementations behind Graphcore's and TensorFlow's names."""
