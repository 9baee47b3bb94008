"""Functions of Graphcore's ``sharding``, which look at a graph; ``scopes.ipu_shard`` is the scope that shards it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipusim.ipu.graph.split import SHARD
from ipusim.ipu.graph.tensorflow_import import load

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
    """
    found: set[Any] = set()
    work = [each.op if isinstance(each, tf.Tensor) else each for each in roots]
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
    """
    return attr_name in o.node_def.attr


def get_shard_from_colocation(op: Any) -> int | None:
    """Return the shard of an operation that this one is placed with; None without such an operation.

    Args:
        op: the operation.
    """
    for group in op.colocation_groups():
        name = group.decode().removeprefix("loc:@")
        beside = _by_name(op.graph, name)
        if beside is not None and has_attr(beside, SHARD):
            return int(beside.get_attr(SHARD))
    return None


def _by_name(graph: Any, name: str) -> Any:
    try:
        return graph.get_operation_by_name(name)
    except KeyError:
        return None
