"""Offer Horovod's functions on simulated hosts, one Horovod process per host.

``ipusim run program.py --hosts 3`` runs a program on three hosts. Hosts must call collectives in the same order, with
equal names if a collective has a name. The time of collectives on the hosts' network appears in the Timeline of the
host's next program.
"""

from __future__ import annotations

from contextvars import ContextVar
from enum import Enum
from typing import Any, Final

from ipusim.api import machine
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.hosts import (
    cross_rank,
    cross_size,
    init,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)
from ipusim.ipu.traced import host_collectives

__all__ = [
    "Average",
    "Max",
    "Min",
    "Operation",
    "Product",
    "Sum",
    "allgather",
    "allreduce",
    "broadcast",
    "cross_rank",
    "cross_size",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "rank",
    "shutdown",
    "size",
]

tf = load()
#: Largest number of hosts of a program, as in a scenario.
MOST_HOSTS: Final = 1024


class Operation(Enum):
    """Reduction of ``allreduce``; values are the names in ``host_collectives``."""

    Average = "average"
    Sum = "sum"
    Min = "min"
    Max = "max"
    Product = "product"


Average, Sum, Min, Max, Product = Operation

#: Host that called last, and its number of unnamed calls per collective.
_CALLS: Final[ContextVar[tuple[machine.Host | None, dict[str, int]]]] = ContextVar(
    "collectives_called", default=(None, {})
)


def allreduce(tensor: Any, op: Operation | None = None) -> Any:
    """Reduce a tensor over all hosts, by default to the average.

    For ``tf.IndexedSlices``, hosts gather values and indices; an average divides the values by the number of hosts.

    Args:
        tensor: this host's tensor.
        op: reduction, by default Average.

    Raises:
        ProgramTypeError: if the argument is not a tensor or op is not an operation.
        ProgramError: if tensors differ in shape or type, or if op averages whole numbers.
    """
    operation = Average if op is None else op
    if not isinstance(operation, Operation):
        checks.wrong_type("op", "one of horovod.Average, Sum, Min, Max and Product", op)
    if not isinstance(tensor, tf.IndexedSlices):
        return host_collectives.reduced(_describe("allreduce", None), _tensor(tensor), operation.value)
    if operation not in (Average, Sum):
        checks.wrong_value("op", "Average or Sum of tf.IndexedSlices", operation.name)
    values, indices = allgather(tensor.values), allgather(tensor.indices)
    if operation is Average:
        values /= tf.cast(size(), values.dtype)
    return tf.IndexedSlices(values, indices, tensor.dense_shape)


def allgather(tensor: Any, name: str | None = None) -> Any:
    """Concatenate the tensors of all hosts along the first axis; other axes have equal lengths.

    Args:
        tensor: this host's tensor.
        name: collective's name, equal on all hosts.

    Raises:
        ProgramTypeError: unless the argument is a tensor.
        ProgramError: if tensor has no axes, or differs from the others in type or in an axis other than the first.
    """
    return host_collectives.gathered(_describe("allgather", name), _tensor(tensor))


def broadcast(tensor: Any, root_rank: int, name: str | None = None) -> Any:
    """Return the tensor of the host with rank ``root_rank``.

    Args:
        tensor: this host's tensor, of equal shape and type on all hosts.
        root_rank: rank of the sending host.
        name: collective's name, equal on all hosts.

    Raises:
        ProgramTypeError: if the argument is not a tensor or root_rank is not a rank.
        ProgramError: if root_rank is out of range, or if tensors differ in shape or type.
    """
    root = checks.integer("root_rank", root_rank)
    return host_collectives.broadcasted(_describe("broadcast", name), _tensor(tensor), root)


def _tensor(tensor: Any) -> Any:
    """Return a value as a tensor; raises ProgramTypeError for a value without numbers."""
    if not tf.is_tensor(tensor):
        checks.numbers("tensor", tensor)
    return tf.convert_to_tensor(tensor)


def _describe(call: str, name: str | None) -> str:
    """Return a collective's description for messages: with its name, or numbered among unnamed calls."""
    if name is not None:
        return f"horovod.{call} of {checks.text('name', name)!r}"
    host, (caller, calls) = machine.this_host(), _CALLS.get()
    number = 1 + (calls.get(call, 0) if caller is host else 0)
    _CALLS.set((host, {**(calls if caller is host else {}), call: number}))
    return f"horovod.{call} number {number}"
