"""Add Graphcore's operations to TensorFlow's graph as ``PyFunc`` nodes.

A token among the attributes of a node finds its kernel. Only simulated IPUs run these nodes; TensorFlow never does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipusim.base.errors import ProgramError
from ipusim.ipu.graph.registry import Entry, register_token
from ipusim.ipu.graph.tensorflow_import import load

tf = load()


def add_node(entry: Entry, inputs: Sequence[Any], outputs: Sequence[tuple[Any, Any]], name: str) -> list[Any]:
    """Add a node for one of Graphcore's operations to TensorFlow's current graph.

    Args:
        entry: kernel of the node.
        inputs: input tensors.
        outputs: dtype and static shape per result.
        name: name of the node.

    Returns:
        Result tensors, or only the operation in a list if ``outputs`` is empty.

    Raises:
        ProgramError: if TensorFlow executes eagerly here, without a graph.
    """
    if tf.executing_eagerly():
        raise ProgramError(f"{name}: expected a call in a function that runs on IPUs, got one outside functions")
    graph = tf.compat.v1.get_default_graph()
    token = register_token(entry, graph)
    results = tf.raw_ops.PyFunc(input=list(inputs), token=token, Tout=[dtype for dtype, _ in outputs], name=name)
    if not outputs:
        return [results]
    for tensor, (_, shape) in zip(results, outputs, strict=True):
        tensor.set_shape(shape)
    return list(results)
