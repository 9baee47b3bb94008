"""Read the shards of a graph, which ``scopes.ipu_shard`` sets: Graphcore's ``sharding``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipusim.ipu.graph.node import reach
from ipusim.ipu.graph.split import SHARD
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks

tf = load()


def propagate_sharding(g: Any) -> None:
    """Do nothing: an operation outside of scopes runs on the shard of its inputs.

    Args:
        g: a graph.
    """


def dependencies(roots: Sequence[Any]) -> set[Any]:
    """Return operations together with all their dependencies, by inputs and control edges.

    Args:
        roots: operations, or tensors.

    Raises:
        ProgramTypeError: if roots holds other values.
    """
    checks.instance("roots", roots, list | tuple | set, "a list of operations or tensors")
    operations = [_operation("roots", root) for root in roots]
    return reach(operations, lambda item: [*(tensor.op for tensor in item.inputs), *item.control_inputs])


def has_attr(o: Any, attr_name: str) -> bool:
    """Tell whether an operation has an attribute.

    Args:
        o: the operation.
        attr_name: name of the attribute.

    Raises:
        ProgramTypeError: if o is not an operation or attr_name is not text.
    """
    return checks.text("attr_name", attr_name) in _operation("o", o).node_def.attr


def get_sharding(op: Any) -> list[int] | None:
    """Return the shard of an operation, in a list, or None for operations without a shard.

    Args:
        op: the operation; gradient operations have the shard of their forward operation.

    Raises:
        ProgramTypeError: unless the argument is an operation.
    """
    op = _operation("op", op)
    while op._original_op is not None:
        op = op._original_op
    return [int(op.get_attr(SHARD))] if has_attr(op, SHARD) else None


def get_shard_from_colocation(op: Any) -> int | None:
    """Return the shard of an operation colocated with this operation, or None without a colocated operation.

    Args:
        op: the operation.

    Raises:
        ProgramTypeError: unless the argument is an operation.
    """
    op = _operation("op", op)
    for group in op.colocation_groups():
        name = group.decode().removeprefix("loc:@")
        neighbour = _by_name(op.graph, name)
        if neighbour is not None and has_attr(neighbour, SHARD):
            return int(neighbour.get_attr(SHARD))
    return None


def _operation(argument: str, value: Any) -> Any:
    """Return an operation, or a tensor's operation; raises ProgramTypeError for another value."""
    checks.instance(argument, value, tf.Operation | tf.Tensor, "an operation or a tensor")
    return value.op if isinstance(value, tf.Tensor) else value


def _by_name(graph: Any, name: str) -> Any:
    """Return a graph's operation by name; None for an unknown name."""
    try:
        return graph.get_operation_by_name(name)
    except KeyError:
        return None
