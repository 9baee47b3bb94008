"""Horovod's functions on simulated hosts, with one Horovod process for each host.

``run`` starts them, and each calls the same function; ``ipusim run program.py --hosts 3`` runs a whole file on each:

>>> import numpy as np
>>> from ipusim.ipu import horovod as hvd
>>> def program():
...     return hvd.allreduce(np.float32(hvd.rank())).item(), hvd.allgather(np.full(hvd.rank(), hvd.rank())).tolist()
>>> hvd.run(program, np=3)
[(1.0, [1, 2, 2]), (1.0, [1, 2, 2]), (1.0, [1, 2, 2])]

Hosts come to their collectives in the same order, and agree on the names of those that have one. What collectives
take over the hosts' network stands in the Timeline of the next program that a host runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final

from ipusim.api import machine
from ipusim.base.errors import ProgramStateError, UnsupportedProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.call_checks import check_call
from ipusim.ipu.runtime.distribution import broadcasted, gathered, reduced
from ipusim.ipu.runtime.host import Fetch
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
from ipusim.ipu.runtime.offered import rows
from ipusim.ipu.runtime.recording import recorder, recording

__all__ = [
    "Adasum",
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
    "run",
    "shutdown",
    "size",
]

#: Hosts that one process simulates at most, as in a scenario.
MOST: Final = 1024


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    np: int = 1,  # Horovod's name
) -> list[Any]:
    """Call a function on ``np`` simulated hosts, in turns in this process, and return its results by rank.

    What the caller has configured each host begins with; what one host configures is its own. Of profiles around
    the call the first host's programs are part, which stand for all.

    Raises ProgramTypeError and ProgramError for arguments that it does not take, ProgramStateError on a host that
    ``run`` has started, and where a host waits for what will not come; and what the function raises.
    """
    named = check_call("func", func, args, kwargs)
    count = checks.whole("np", np, 1)
    if count > MOST:
        checks.wrong_value("np", f"at most {MOST:,} hosts", count)
    if machine.this_host() is not None:
        raise ProgramStateError(
            "horovod.run: expected to be called outside of the hosts that it or `ipusim run --hosts` starts, got a "
            "call on one"
        )
    return on_hosts(partial(func, *args, **named), count)


def on_hosts(function: Callable[[], Any], count: int, turn: Callable[[int], None] = lambda _: None) -> list[Any]:
    """Call a function on so many hosts and return its results by rank; a recorder sees the first host's programs.

    ``turn`` is called with the rank of the host that goes on next.
    """

    def call() -> Any:
        with recording(recorder() if rank() == 0 else None):
            return function()

    return machine.run_together([call] * count, turn)


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
        values / values.dtype.type(machine.host_count()) if operation is Average else values,
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

    Raises ProgramTypeError for what is no tensor or rank, ProgramError for a rank out of range, and for tensors of
    several shapes or types.
    """
    return broadcasted(_named("broadcast", name), _value(tensor), checks.integer("root_rank", root_rank))


def _value(tensor: Any) -> Any:
    return tensor if isinstance(tensor, Fetch) else checks.numbers("tensor", tensor)


def _named(what: str, name: str | None) -> str:
    """Return what hosts wait for: a collective by its name, or by its number among those without."""
    if name is not None:
        return f"horovod.{what} of {checks.text('name', name)!r}"
    host, (of, calls) = machine.this_host(), _CALLS.get()
    number = 1 + (calls.get(what, 0) if of is host else 0)
    _CALLS.set((host, {**(calls if of is host else {}), what: number}))
    return f"horovod.{what} number {number}"


@dataclass(frozen=True, eq=False)
class IndexedSlices:
    """Rows of a tensor; a row that is there several times counts several times.

    Attributes:
        values: the rows.
        indices: their numbers.
        dense_shape: of the tensor, where it is known.

    Raises ProgramTypeError for what are no tensors.
    """

    values: Any
    indices: Any
    dense_shape: Any = None

    def __post_init__(self) -> None:
        """Check that they are tensors."""
        for name in ("values", "indices"):
            value = getattr(self, name)
            if not isinstance(value, Fetch):
                object.__setattr__(self, name, checks.numbers(name, value))


_STRATEGIES: Final = ("ipu_horovod_strategy", "ipu_multi_replica_strategy", "popdist_strategy")
__getattr__, __dir__ = rows(__name__, {name: f"{__name__}.{name}" for name in _STRATEGIES})
