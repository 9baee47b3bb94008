"""Operations of Graphcore's as nodes of TensorFlow's graph: each is a ``PyFunc`` whose token the registry knows.

TensorFlow never executes such a node: it lies in the part of the graph that simulated IPUs run.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, Final
from weakref import finalize

from ipusim.ipu.graph.registry import Entry, forget_token, register_token
from ipusim.ipu.graph.tensorflow_import import load

tf = load()

_NUMBERS: Final = count()


def add_node(entry: Entry, inputs: Sequence[Any], outputs: Sequence[tuple[Any, Any]], name: str) -> list[Any]:
    """Write a node of one of Graphcore's operations into the graph that is being built.

    Args:
        entry: kernel of the node.
        inputs: tensors that it reads.
        outputs: dtype and static shape of each result.
        name: name of the node.

    Returns:
        The results; a list with the operation if there are no results.
    """
    graph = tf.compat.v1.get_default_graph()
    token = f"ipusim:{next(_NUMBERS)}"
    register_token(token, entry)
    finalize(graph, forget_token, token)
    made = tf.raw_ops.PyFunc(input=list(inputs), token=token, Tout=[dtype for dtype, _ in outputs], name=name)
    if not outputs:
        return [made]
    for tensor, (_, shape) in zip(made, outputs, strict=True):
        tensor.set_shape(shape)
    return list(made)
