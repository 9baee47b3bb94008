"""Horovod's functions on simulated hosts, with one Horovod process for each host.

``ipusim run program.py --hosts 3`` runs a program on each. Hosts come to their collectives in the same order, and agree
on the names of those that have one. What collectives take over the hosts' network stands in the Timeline of the next
program that a host runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from enum import Enum
from functools import partial
from typing import Any, Final

from ipusim.api import Array, machine
from ipusim.base.errors import ProgramStateError, UnsupportedProgramError
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.call_checks import check_call
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
    "Adasum",
    "Average",
    "BroadcastGlobalVariablesHook",
    "Max",
    "Min",
    "Operation",
    "Product",
    "Sum",
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_variables",
    "cross_rank",
    "cross_size",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "rank",
    "run",
    "shutdown",
    "size",
]

tf = load()
_V1: Final = tf.compat.v1
_HOOK: Any = _V1.train.SessionRunHook
#: Hosts of a program at most, as in a scenario.
MOST: Final = 1024
#: Calls a function on so many hosts, for the program that runs; None outside of programs.
starter: Final[ContextVar[Callable[[Callable[[], Any], int], list[Any]] | None]] = ContextVar("starter", default=None)


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
_CALLS: Final[ContextVar[tuple[machine.Host | None, dict[str, int]]]] = ContextVar(
    "collectives_called", default=(None, {})
)


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    np: int = 1,  # Horovod's name
) -> list[Any]:
    """Call a function on ``np`` simulated hosts, and return its results by rank.

    Each host is a process, which runs the program up to this call without printing, and then the function.

    Args:
        func: the function; its results must be picklable.
        args: its arguments.
        kwargs: its arguments by name.
        np: number of hosts.

    Raises:
        ProgramTypeError, ProgramError: for arguments that it does not take.
        ProgramStateError: on a host, outside of a program that ``ipusim run`` runs, and where a host waits for what
            will not come.
    """
    named = check_call("func", func, args, kwargs)
    count = checks.whole("np", np, 1)
    if count > MOST:
        checks.wrong_value("np", f"at most {MOST:,} hosts", count)
    start = starter.get()
    if machine.this_host() is not None:
        raise ProgramStateError(
            "horovod.run: expected to be called outside of the hosts that it or `ipusim run --hosts` starts, got a "
            "call on one"
        )
    if start is None:
        raise ProgramStateError(
            "horovod.run: expected a program that `ipusim run program.py` runs, whose hosts run it too"
        )
    return start(partial(func, *args, **named), count)


def allreduce(tensor: Any, op: Operation | None = None) -> Any:
    """Return the tensors of all hosts reduced, by default their average.

    Of ``tf.IndexedSlices`` values and indices are gathered, and an average divides the values by the hosts.

    Args:
        tensor: this host's.
        op: how they are reduced.

    Raises:
        ProgramTypeError: for what is no tensor or operation.
        UnsupportedProgramError: for Adasum.
        ProgramError: for tensors of several shapes or types, and averages of whole numbers.
    """
    operation = Average if op is None else op
    if not isinstance(operation, Operation):
        checks.wrong_type("op", "one of horovod.Average, Sum, Min, Max and Product", op)
    if operation is Adasum:
        raise UnsupportedProgramError("op: expected one of Average, Sum, Min, Max and Product, got Adasum")
    if not isinstance(tensor, tf.IndexedSlices):
        return host_collectives.reduced(_named("allreduce", None), _tensor(tensor), operation.value)
    if operation not in (Average, Sum):
        checks.wrong_value("op", "Average or Sum of tf.IndexedSlices", operation.name)
    values, indices = allgather(tensor.values), allgather(tensor.indices)
    if operation is Average:
        values /= tf.cast(size(), values.dtype)
    return tf.IndexedSlices(values, indices, tensor.dense_shape)


def allgather(tensor: Any, name: str | None = None) -> Any:
    """Return the tensors of all hosts one after the other along the first axis, which alone may differ.

    Args:
        tensor: this host's.
        name: on which all hosts have to agree.

    Raises:
        ProgramTypeError: for what is no tensor.
        ProgramError: for one without axes, and for other shapes or types.
    """
    return host_collectives.gathered(_named("allgather", name), _tensor(tensor))


def broadcast(tensor: Any, root_rank: int, name: str | None = None) -> Any:
    """Return the tensor of one host; those of all have its shape and type.

    Args:
        tensor: this host's.
        root_rank: the host's rank.
        name: on which all hosts have to agree.

    Raises:
        ProgramTypeError: for what is no tensor or rank.
        ProgramError: for a rank out of range, and for tensors of several shapes or types.
    """
    rank_of = checks.integer("root_rank", root_rank)
    return host_collectives.broadcasted(_named("broadcast", name), _tensor(tensor), rank_of)


def broadcast_variables(variables: Sequence[Any], root_rank: int) -> Any:
    """Give variables of all hosts the values that those of one host have.

    Args:
        variables: the same on all hosts.
        root_rank: the host's rank.

    Returns:
        The operation that does it; None in eager execution, which has done it.

    Raises:
        ProgramTypeError: for what is no rank; ProgramError for a rank out of range.
    """
    host, root = machine.this_host(), checks.integer("root_rank", root_rank)
    name = _named("broadcast_variables", None)

    def sent(*arrays: Array) -> list[Array]:
        return [machine.broadcast(host, name, array, root) for array in arrays]

    values = host_collectives.together(sent, variables, [variable.shape for variable in variables])
    assigned = [variable.assign(value) for variable, value in zip(variables, values, strict=True)]
    return None if tf.executing_eagerly() else tf.group(*assigned)


def broadcast_global_variables(root_rank: int) -> Any:
    """Return the operation that gives all global variables the values of one host; see :func:`broadcast_variables`."""
    return broadcast_variables(_V1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(_HOOK):  # type: ignore[misc]  # TensorFlow has no types
    """Gives all global variables the values of one host, when a session has begun."""

    def __init__(self, root_rank: int, device: str = "") -> None:
        """Take the rank of the host; ``device`` is without effect."""
        super().__init__()
        self._root = checks.integer("root_rank", root_rank)

    def begin(self) -> None:
        """Write the operation into the session's graph."""
        self._operation = broadcast_global_variables(self._root)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Run it."""
        session.run(self._operation)


def _tensor(tensor: Any) -> Any:
    if not tf.is_tensor(tensor):
        checks.numbers("tensor", tensor)
    return tf.convert_to_tensor(tensor)


def _named(what: str, name: str | None) -> str:
    """Return what hosts wait for: a collective by its name, or by its number among those without."""
    if name is not None:
        return f"horovod.{what} of {checks.text('name', name)!r}"
    host, (of, calls) = machine.this_host(), _CALLS.get()
    number = 1 + (calls.get(what, 0) if of is host else 0)
    _CALLS.set((host, {**(calls if of is host else {}), what: number}))
    return f"horovod.{what} number {number}"
