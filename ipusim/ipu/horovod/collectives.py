"""Horovod's collectives, of values on simulated hosts."""

from __future__ import annotations

from contextvars import ContextVar
from enum import Enum
from typing import Any, Final

from ipusim.errors import UnsupportedProgramError
from ipusim.ipu import checks
from ipusim.ipu.host import Fetch
from ipusim.ipu.host_values import broadcasted, gathered, reduced
from ipusim.ipu.indexed_slices import IndexedSlices
from ipusim.machine.hosts import Host, host_count, this_host


class Operation(Enum):
    """How ``allreduce`` combines tensors; the value is the core's name."""

    Average = "average"
    Sum = "sum"
    Min = "min"
    Max = "max"
    Product = "product"
    Adasum = "adasum"


Average, Sum, Min, Max, Product, Adasum = Operation

#: A host, and of each collective its calls without a name so far.
_CALLS: Final[ContextVar[tuple[Host | None, dict[str, int]]]] = ContextVar("collectives_called", default=(None, {}))


def allreduce(tensor: Any, op: Operation | None = None) -> Any:
    """Return the tensors of all hosts reduced, by default their average.

    Of ``tf.IndexedSlices`` values and indices are gathered, and an average divides the values by the hosts. A tensor
    of a session gives one. Raises ProgramTypeError for what is no tensor or operation, UnsupportedProgramError for
    Adasum, and ProgramError for tensors of several shapes or types, and averages of whole numbers.
    """
    operation = Average if op is None else op
    if not isinstance(operation, Operation):
        checks.wrong_type("op", "one of horovod.Average, Sum, Min, Max and Product", op)
    if operation is Adasum:
        raise UnsupportedProgramError("op: expected one of Average, Sum, Min, Max and Product, got Adasum")
    if not isinstance(tensor, IndexedSlices):
        return reduced(_named("allreduce", None), _value(tensor), operation.value)
    if operation not in (Average, Sum):
        checks.wrong_value("op", "Average or Sum of tf.IndexedSlices", operation.name)
    values, indices = allgather(tensor.values), allgather(tensor.indices)
    return IndexedSlices(
        values / values.dtype.type(host_count()) if operation is Average else values,
        indices,
        tensor.dense_shape,
    )


def allgather(tensor: Any, name: str | None = None) -> Any:
    """Return the tensors of all hosts one after the other along the first axis, which alone may differ.

    Raises ProgramTypeError for what is no tensor, ProgramError for one without axes and for other shapes or types.
    """
    return gathered(_named("allgather", name), _value(tensor))


def broadcast(tensor: Any, root_rank: int, name: str | None = None) -> Any:
    """Return the tensor of the host with rank ``root_rank``; those of all have its shape and type.

    Raises ProgramTypeError for what is no tensor or rank, ProgramError for a rank that there is not, and for tensors of
    several shapes or types.
    """
    return broadcasted(_named("broadcast", name), _value(tensor), checks.integer("root_rank", root_rank))


def _value(tensor: Any) -> Any:
    return tensor if isinstance(tensor, Fetch) else checks.numbers("tensor", tensor)


def _named(what: str, name: str | None) -> str:
    """Return what hosts wait for: a collective by its name, or by its number among those without."""
    if name is not None:
        return f"horovod.{what} of {checks.text('name', name)!r}"
    host, (of, calls) = this_host(), _CALLS.get()
    number = 1 + (calls.get(what, 0) if of is host else 0)
    _CALLS.set((host, {**(calls if of is host else {}), what: number}))
    return f"horovod.{what} number {number}"
