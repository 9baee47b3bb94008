"""Kernels, one module per family of operations; importing this package registers all kernels."""

from __future__ import annotations

from importlib import import_module
from typing import Final

#: Modules of this package.
FAMILIES: Final = (
    "activations",
    "checks",
    "convolution",
    "draws",
    "elementwise",
    "images",
    "indexing",
    "linear_algebra",
    "lists",
    "normalisation",
    "pooling",
    "products",
    "reductions",
    "shaping",
    "updates",
    "variables",
)

for _family in FAMILIES:
    import_module(f"{__name__}.{_family}")
