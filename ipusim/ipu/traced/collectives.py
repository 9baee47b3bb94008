"""Add collective nodes between a stage's replicas; the caller gives the function of the gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ipusim.api import Array, functions
from ipusim.ipu.graph.own_nodes import add_node
from ipusim.ipu.graph.registry import Entry
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime.host_block import check_on_ipu

tf = load()


class CollectiveMark:
    """Mark of nodes in which a program's replicas communicate or report their replica number."""


#: Value in the registry entry of every collective node, by which a computation is found to have collectives.
_MARK: Final = CollectiveMark()


def add_collective(
    function: Callable[[Array], Any],
    gradient: Callable[[Array, Array], Any] | None,
    x: Any,
    shape: Sequence[int | None],
    name: str,
) -> Any:
    """Add a collective node.

    Args:
        function: takes a replica's array, returns the result.
        gradient: takes the array and the result's gradient, returns the array's gradient. None for results without
            gradients.
        x: tensor of a replica.
        shape: static shape of the result.
        name: name of the node.
    """
    advice = "replicas meet on their IPUs, so call it outside of the scope"
    check_on_ipu(operation=f"collective {name!r} is called", advice=advice)

    def call(value: Any) -> Any:
        (result,) = add_node(_entry(function), [value], [(value.dtype, shape)], name)

        def pull_back(upstream: Any) -> Any:
            if gradient is None:
                return None
            (gradient_value,) = add_node(
                _entry(gradient), [value, upstream], [(value.dtype, value.shape)], f"{name}_grad"
            )
            return gradient_value

        return result, pull_back

    return tf.custom_gradient(call)(x)


def _entry(function: Callable[..., Any]) -> Entry:
    """Return the registry entry of a collective node that calls a function of arrays."""
    return Entry(lambda node: lambda *arrays: np.asarray(function(*map(np.asarray, arrays))), value=_MARK)


def add_replica_index(name: str) -> Any:
    """Add a node that returns the replica number as int32."""
    return add_node(_entry(lambda: np.int32(functions.replica_index())), [], [(tf.int32, [])], name)[0]
