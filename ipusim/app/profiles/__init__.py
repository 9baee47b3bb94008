"""What other tools measured of a pipeline's stages, as a CSV file and a scenario of them."""
