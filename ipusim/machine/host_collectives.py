"""Reduce, gather and broadcast arrays among hosts, following Horovod's rules.

Graphcore's ``horovod`` in :mod:`ipusim.ipu` calls these functions. An exchange takes time on the hosts' network; a host
owes this time until its next program run, which records it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Final

import numpy as np

from ipusim.base.errors import ProgramError
from ipusim.machine.hosts import Host
from ipusim.model.layers.layer import Array
from ipusim.pricing import laws
from ipusim.pricing.exchanges import HostExchange

#: Reduction of two arrays, by operation name; a mean is a sum, divided at the end.
_REDUCES: Final[Mapping[str, Callable[[Array, Array], Array]]] = {
    "average": np.add,
    "sum": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "product": np.multiply,
}


def all_reduce(host: Host | None, name: str, array: Array, operation: str = "average") -> Array:
    """Reduce the arrays of every host, keeping the dtype.

    The operation is average, sum, min, max or product. The order of reduction is the order of ranks, so that every host
    has the same bits. If ``host`` is None, the array is the only operand.

    Raises ProgramError for an average of whole numbers, arrays of several shapes or dtypes, and hosts with different
    operations.
    """
    if operation == "average" and array.dtype.kind != "f":
        raise ProgramError(f"{name}: expected floating-point numbers to average, got {array.dtype}; take their sum")
    arrays = _exchange(host, name, array, f"by {operation}", laws.NETWORK_SUM)
    _check_alike(name, arrays, first_axes_too=True)
    reduced = reduce(_REDUCES[operation], arrays)
    if operation == "average":
        reduced = reduced / array.dtype.type(len(arrays))
    return np.array(reduced, array.dtype)


def all_gather(host: Host | None, name: str, array: Array) -> Array:
    """Concatenate the arrays of every host along the first axis, by rank.

    Raises ProgramError for a single number, and for arrays that differ in dtype or in an axis after the first.
    """
    if not array.ndim:
        raise ProgramError(f"{name}: expected an array with a first axis to gather along, got a single number")
    arrays = _exchange(host, name, array, "", laws.NETWORK_GATHER)
    _check_alike(name, arrays, first_axes_too=False)
    return np.concatenate(arrays)


def broadcast(host: Host | None, name: str, array: Array, root: int) -> Array:
    """Return the array of the host with rank ``root``.

    Raises ProgramError for a rank out of range, and if ranks, shapes or dtypes differ between hosts.
    """
    count = 1 if host is None else host.count
    if not 0 <= root < count:
        raise ProgramError(f"root_rank: expected a rank from 0 to {count - 1}, got {root}")
    arrays = _exchange(host, name, array, f"from rank {root}", laws.NETWORK_BROADCAST)
    _check_alike(name, arrays, first_axes_too=True)
    return arrays[root].copy()


def broadcast_all(host: Host, name: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the named arrays of host 0, sent as a single message. Every host must have arrays of the same shapes."""
    flat = [np.ascontiguousarray(array).view(np.uint8).reshape(-1) for array in arrays.values() if array.size]
    message = broadcast(host, name, np.concatenate(flat) if flat else np.zeros(0, np.uint8), root=0)
    result, first = {}, 0
    for key, array in arrays.items():
        result[key] = message[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
        first += array.nbytes
    return result


def _exchange(host: Host | None, name: str, array: Array, detail: str, law: laws.Law) -> Sequence[Array]:
    """Return the arrays of every host, by rank. Raises ProgramError if hosts disagree on the operation."""
    if host is None:
        return [array]
    contributions = host.exchange(name, (detail, array.copy()))
    for rank, (peer_detail, _) in enumerate(contributions):
        if peer_detail != contributions[0][0]:
            raise ProgramError(
                f"{name}: expected the same on all hosts, got {contributions[0][0]} on host 0, {peer_detail} on {rank}"
            )
    arrays = [peer_array for _, peer_array in contributions]
    host.owed.append(HostExchange(law, max(peer_array.nbytes for peer_array in arrays)))
    return arrays


def _check_alike(name: str, arrays: Sequence[Array], *, first_axes_too: bool) -> None:
    """Refuse arrays of several dtypes or shapes. Only if ``first_axes_too`` is False may the first axes differ."""
    first = arrays[0]
    for rank, array in enumerate(arrays):
        if array.dtype != first.dtype:
            raise ProgramError(
                f"{name}: expected the same type on all hosts, got {first.dtype} on host 0, {array.dtype} on host "
                f"{rank}"
            )
        is_same = (
            array.shape == first.shape
            if first_axes_too
            else array.shape[1:] == first.shape[1:] and array.ndim == first.ndim
        )
        if not is_same:
            exception_text = "" if first_axes_too else " except for the first axis"
            raise ProgramError(
                f"{name}: expected the same shape on all hosts{exception_text}, got {first.shape} on host 0, "
                f"{array.shape} on host {rank}"
            )
