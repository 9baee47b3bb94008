"""The package ``ipu.ops`` of Graphcore's API: modules of operations, which stand above it too."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

#: Modules of operations.
_MODULES: Final = (
    "all_to_all_op",
    "cross_replica_ops",
    "custom_ops",
    "embedding_ops",
    "functional_ops",
    "image_ops",
    "internal_ops",
    "math_ops",
    "nn_ops",
    "normalization_ops",
    "pipelining_ops",
    "rand_ops",
    "reduce_scatter_op",
    "replication_ops",
    "rnn_ops",
    "slicing_ops",
    "statistics_ops",
)


def __getattr__(name: str) -> Any:
    """Return a module by its name; raises AttributeError for another."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"ipusim.ipu.{name}")


def __dir__() -> list[str]:
    """Return the modules."""
    return list(_MODULES)
