"""Accept Graphcore's outlining of functions (``functional_ops``), which leaves them unchanged."""

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
    """Return ``func`` unchanged, or a decorator that returns its function unchanged.

    Without effect: code is not compiled, and memory estimates assume that all functions are outlined.
    """
    checks.truth("unique_sharding", unique_sharding)
    checks.three_state("keep_input_layouts", keep_input_layouts)
    checks.function("func", func, optional=True)
    return (lambda value: value) if func is None else func


def function(func: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Call :func:`outlined_function`, which had this name before release 2.0."""
    return outlined_function(func, **options)
