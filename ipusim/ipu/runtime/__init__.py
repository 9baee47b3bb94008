"""What carries out the names of Graphcore's and TensorFlow's."""
