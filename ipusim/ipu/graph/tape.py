"""Note the origins of gradient nodes that a ``tf.GradientTape`` writes.

TensorFlow itself notes origins only for ``tf.gradients``.
A gradient node's origin is the forward operation whose gradient the node computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, Final

from ipusim.ipu.graph.tensorflow_import import load

tf = load()

_TAPE: Final = import_module("tensorflow.python.eager.backprop")
_REGISTRY: Final = import_module("tensorflow.python.pywrap_tfe")
_GRADIENT_FUNCTION: Final = _TAPE._gradient_function


def note_origins() -> None:
    """Make all tapes of this process record the origin of every gradient node in a graph."""
    _REGISTRY.TFE_Py_RegisterGradientFunction(_gradient_with_origin)


def _gradient_with_origin(
    operation: str,
    attributes: Any,
    count: int,
    inputs: Sequence[Any] | None,
    outputs: Sequence[Any] | None,
    gradients: Any,
    skipped_inputs: Any,
    scope: str,
) -> Any:
    """Write an operation's gradient like TensorFlow, with the operation as origin of all nodes."""
    arguments = (operation, attributes, count, inputs, outputs, gradients, skipped_inputs, scope)
    if tf.executing_eagerly():
        return _GRADIENT_FUNCTION(*arguments)
    graph = tf.compat.v1.get_default_graph()
    origin = next(_candidates(graph, operation, inputs or (), outputs or (), scope), None)
    if origin is None:
        return _GRADIENT_FUNCTION(*arguments)
    with graph._original_op(origin):
        return _GRADIENT_FUNCTION(*arguments)


def _candidates(graph: Any, operation: str, inputs: Sequence[Any], outputs: Sequence[Any], scope: str) -> Iterator[Any]:
    """Yield operations that a tape's record may mean: found by results, by arguments, then by scope name."""
    for tensor in outputs:
        if getattr(tensor, "graph", None) is graph and tensor.op.type == operation:
            yield tensor.op
    for tensor in inputs:
        if getattr(tensor, "graph", None) is graph:
            for reader in tensor.consumers():
                pairs = zip(reader.inputs, inputs, strict=False)
                if reader.type == operation and all(element is None or element is read for read, element in pairs):
                    yield reader
    if scope:
        yield from (node for node in graph.get_operations() if node.type == operation and node.name == scope)
        yield from (
            node for node in graph.get_operations() if node.type == operation and node.name.startswith(f"{scope}/")
        )
