"""Functions of Graphcore's ``functional_ops``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipusim.ipu.runtime import checks


def outlined_function(
    func: Callable[..., Any] | None = None,
    unique_sharding: bool = False,
    keep_input_layouts: bool | None = None,
    name: str | None = None,
) -> Any:
    """Return ``func`` as it is, or a decorator that does.

    Without effect: code is not compiled, and is estimated as if all functions were outlined.
    """
    checks.truth("unique_sharding", unique_sharding)
    checks.three_state("keep_input_layouts", keep_input_layouts)
    checks.function("func", func, optional=True)
    return (lambda value: value) if func is None else func


def function(func: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Return what :func:`outlined_function` does, by its name before release 2.0."""
    return outlined_function(func, **options)
