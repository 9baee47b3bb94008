"""How weights learn: optimizers, functions of gradients, and the work of accumulating and updating."""
