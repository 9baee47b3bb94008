"""Operations of Graphcore's API that are more than a layer: what they compute, their gradients and their work."""
