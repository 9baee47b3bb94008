"""Functions of Graphcore's ``sharding``, which look at a graph; ``scopes.ipu_shard`` is the scope that shards it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipusim.ipu.graph.split import SHARD
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks

tf = load()


def propagate_sharding(g: Any) -> None:
    """Do nothing: what is in no scope runs on the shard of what it is computed from.

    Args:
        g: a graph.
    """


def dependencies(roots: Sequence[Any]) -> set[Any]:
    """Return operations with all that they depend on, by their inputs and by control edges.

    Args:
        roots: operations, or tensors.

    Raises:
        ProgramTypeError: for other values.
    """
    found: set[Any] = set()
    checks.instance("roots", roots, list | tuple | set, "a list of operations or tensors")
    work = [_operation("roots", each) for each in roots]
    while work:
        operation = work.pop()
        if operation not in found:
            found.add(operation)
            work += [*(tensor.op for tensor in operation.inputs), *operation.control_inputs]
    return found


def has_attr(o: Any, attr_name: str) -> bool:
    """Tell whether an operation has an attribute.

    Args:
        o: the operation.
        attr_name: name of the attribute.

    Raises:
        ProgramTypeError: for other values.
    """
    return checks.text("attr_name", attr_name) in _operation("o", o).node_def.attr


def get_sharding(op: Any) -> list[int] | None:
    """Return the shard of an operation, in a list; None without one.

    Args:
        op: the operation; one of a gradient has the shard of the operation whose gradient it is.

    Raises:
        ProgramTypeError: for other values.
    """
    op = _operation("op", op)
    while op._original_op is not None:
        op = op._original_op
    return [int(op.get_attr(SHARD))] if has_attr(op, SHARD) else None


def get_shard_from_colocation(op: Any) -> int | None:
    """Return the shard of an operation that this one is placed with; None without such an operation.

    Args:
        op: the operation.

    Raises:
        ProgramTypeError: for other values.
    """
    op = _operation("op", op)
    for group in op.colocation_groups():
        name = group.decode().removeprefix("loc:@")
        beside = _by_name(op.graph, name)
        if beside is not None and has_attr(beside, SHARD):
            return int(beside.get_attr(SHARD))
    return None


def _operation(argument: str, value: Any) -> Any:
    checks.instance(argument, value, tf.Operation | tf.Tensor, "an operation or a tensor")
    return value.op if isinstance(value, tf.Tensor) else value


def _by_name(graph: Any, name: str) -> Any:
    try:
        return graph.get_operation_by_name(name)
    except KeyError:
        return None
