"""Scopes in Graphcore's names: the device, the shard or the host that computations run on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime.devices import ordinal_of
from ipusim.ipu.scopes import (
    frontend_attribute,
    ipu_jit_scope,
    ipu_scope,
    ipu_shard,
    partials_type,
    stochastic_rounding,
)

__all__ = [
    "frontend_attribute",
    "ipu_jit_scope",
    "ipu_scope",
    "ipu_shard",
    "partials_type",
    "stochastic_rounding",
]

tf = load()


def device(name: str | Callable[..., Any] | None) -> AbstractContextManager[Any]:
    """Return the scope of a device: TensorFlow's of the host, and that of an IPU by its name.

    Args:
        name: as ``tf.device`` takes it, such as ``/device:IPU:0``.
    """
    if isinstance(name, str) and ordinal_of(name) is not None:
        return ipu_scope(name)
    scope: AbstractContextManager[Any] = tf.device(name)
    return scope
