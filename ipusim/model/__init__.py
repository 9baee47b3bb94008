"""The models that simulated IPUs execute: layers, losses, optimizers, datasets, and what each costs."""
