"""Collectives inside a function that autograd traces: to it each is one operation, whose gradient is its transpose.

The sum over all replicas of what each of them learns from is what gradients are of. So the transpose of an
all-reduce is an all-reduce of the gradients, that of an all-gather a reduce-scatter and the other way round, and that
of an all-to-all an all-to-all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.extend import defvjp, primitive
from autograd.tracer import isbox

from ipusim.base.errors import ModelError
from ipusim.hardware.collectives.collective import Operation
from ipusim.model.collective_call import CollectiveCall, Combination
from ipusim.model.functions.host_scope import check_on_ipu
from ipusim.model.functions.surrounded import surroundings


@primitive  # type: ignore[untyped-decorator]
def collective(call: CollectiveCall, x: Any) -> Any:
    """Return the result of ``call`` in this replica, in one row but for an all-reduce and an all-to-all.

    Notes the call where that is asked for, and meets the other replicas. ``x`` becomes of the call's dtype, as
    gradients do not always come in that of what they belong to.
    """
    now = surroundings()
    if now.collectives is not None:
        now.collectives.append(call)
    return now.replica.meet(call, np.asarray(x, call.dtype))


def replica_index() -> int:
    """Return which replica the caller runs in; raises ModelError where that is not known."""
    replica = surroundings().replica
    if not replica.known:
        raise ModelError("the number of the replica is not known where a function is written down once for all")
    return replica.index


def all_reduce(x: Any, group: int | None = None) -> Any:
    """Return the sum of ``x`` over the replicas of each group.

    As of all collectives, ``group`` is that many replicas in a row; None for all of the device. Raises ModelError for
    what depends on nothing in a function that is written down once for all replicas, and in a scope of the host's.
    """
    return _collective("all_reduce", x, group)


def all_gather(x: Any, group: int) -> Any:
    """Return the arrays of all replicas of a group, shape (group, *x.shape)."""
    return anp.reshape(_collective("all_gather", x, group), (group, *x.shape))


def all_to_all(x: Any, group: int) -> Any:
    """Return in row k what replica k of the group has in the row of this one; ``x``: shape (group, ...)."""
    rows = anp.reshape(x, (group, -1))
    return anp.reshape(_collective("all_to_all", rows, group), x.shape)


def reduce_scatter(x: Any, group: int, combination: Combination = "add") -> Any:
    """Return this replica's chunk of the sum of ``x``, shape (n,), or of another combination of its elements.

    Chunks have ceil(n / group) elements; behind the end of ``x`` are zeros.
    """
    return _collective("reduce_scatter", x, group, combination)


def reduce_scatter_gradient(x: Any, gradient: Any, group: int, combination: Combination = "add") -> Any:
    """Return the gradient of ``x`` from that of its chunk; raises ModelError for a logical combination."""
    call = CollectiveCall("reduce_scatter", tuple(x.shape), np.dtype(x.dtype).name, group, combination)
    return _scattered_back(call, x, gradient)


def own_chunk(x: Any, group: int) -> Any:
    """Return this replica's chunk of its own ``x``, shape (n,), as :func:`reduce_scatter` cuts it."""
    size = -(-x.shape[0] // group)
    padded = anp.concatenate([x, np.zeros(size * group - x.shape[0], x.dtype)])
    first = replica_index() % group * size
    return padded[first : first + size]


def _collective(operation: Operation, x: Any, group: int | None, combination: Combination = "add") -> Any:
    call = CollectiveCall(operation, tuple(x.shape), np.dtype(x.dtype).name, group, combination)
    check_on_ipu(f"{call} is called", "replicas meet on their IPUs, so call it outside of the scope")
    if not (surroundings().replica.known or isbox(x)):
        raise ModelError(f"{call} depends on no input and no variable, in a function that is written down once for all")
    return collective(call, x)


def _transpose(_: Any, call: CollectiveCall, x: Any) -> Callable[[Any], Any]:
    """Return the call that takes the gradient of a collective's result back to its array."""
    match call.operation:
        case "all_gather":
            size, shape = math.prod(call.shape) * (call.group or 1), call.shape
            back = replace(call, operation="reduce_scatter", shape=(size,))
            return lambda grad: anp.reshape(collective(back, grad), shape)
        case "reduce_scatter":
            return lambda grad: _scattered_back(call, x, grad)
        case _:
            return lambda grad: collective(call, grad)


def _scattered_back(call: CollectiveCall, x: Any, grad: Any) -> Any:
    """Return the gradient of a reduce-scatter's row.

    For what is no sum, every replica needs the rows of the others. Of equal elements that are the least or the
    largest each gets the same share, as in autograd. Raises ModelError for the logical ones.
    """
    assert call.group is not None
    if call.combination in ("logical_and", "logical_or"):
        raise ModelError(f"no gradient comes back through {call}: use what it gives for results alone")
    length = call.shape[0]
    arriving = anp.reshape(all_gather(grad, call.group), (-1,))[:length]
    if call.combination == "add":
        return arriving
    every = all_gather(x, call.group)
    if call.combination == "multiply":
        own = replica_index() % call.group
        return arriving * anp.prod(anp.concatenate([every[:own], every[own + 1 :]]), axis=0)
    extreme = anp.max if call.combination == "maximum" else anp.min
    extremes = extreme(every, axis=0)
    return arriving * (x == extremes) / np.sum(every == extremes, axis=0, dtype=x.dtype)


defvjp(collective, _transpose, argnums=(1,))
