"""List the optimizers, a row per class, for scenarios and messages."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from ipusim.model.learning import accumulating_optimizers, adaptive_optimizers, optimizers
from ipusim.model.rows import Row, classes, row_of


@cache
def rows() -> tuple[Row, ...]:
    """Return the rows of the optimizers; keys common to every optimizer come first."""
    modules = optimizers, adaptive_optimizers, accumulating_optimizers
    table = [row_of(optimizer) for optimizer in classes(tuple(module.__name__ for module in modules))]
    common_names = set.intersection(*({key.name for key in row.keys} for row in table))
    return tuple(_with_common_first(row, common_names) for row in table)


def _with_common_first(row: Row, common_names: set[str]) -> Row:
    first = [replace(key, inherited=True) for key in row.keys if key.name in common_names]
    return replace(row, keys=(*first, *(key for key in row.keys if key.name not in common_names)))
