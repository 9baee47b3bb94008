"""Functions of Graphcore's ``all_to_all_op``."""

from __future__ import annotations

from typing import Any

from autograd import numpy as anp

from ipusim.api import functions
from ipusim.ipu.cross_replica_ops import check_inside, factor, tensor
from ipusim.ipu.runtime import checks


def all_gather(x: Any, replication_factor: int, name: str | None = None) -> Any:
    """Return the values of ``x`` in all replicas of a group of so many in a row, shape (replication_factor, *x.shape).

    Raises ProgramError outside of a stage, ProgramTypeError for what is no tensor of numbers; a factor that does not
    divide the number of replicas is refused when the device is known.
    """
    size = factor("replication_factor", replication_factor)
    x = tensor(x)
    check_inside("all_gather")
    if size == 1:
        return x[None]
    return functions.all_gather(x, size)


def all_to_all(
    x: Any, split_dimension: int, concat_dimension: int, replication_factor: int, name: str | None = None
) -> Any:
    """Return block r, of as many as there are replicas, of ``x`` in each replica, as replica r puts them together.

    ``x`` is cut along one dimension, and what comes from all replicas is joined along another, as XLA's AllToAll has
    it. Raises ProgramError outside of a stage, for dimensions that ``x`` does not have, and for one that cannot be cut
    into equal blocks, ProgramTypeError for what is no tensor of numbers; a factor that is not the number of replicas is
    refused when the device is known.
    """
    size = factor("replication_factor", replication_factor)
    x = tensor(x)
    split = _dimension("split_dimension", split_dimension, x)
    joined = _dimension("concat_dimension", concat_dimension, x)
    if x.shape[split] % size:
        checks.wrong_value("split_dimension", f"one that {size} replicas cut into equal blocks", x.shape[split])
    check_inside("all_to_all")
    if size == 1:
        return x
    blocks = anp.stack(anp.split(x, size, axis=split))
    return anp.concatenate(list(functions.all_to_all(blocks, size)), axis=joined)


def _dimension(name: str, value: int, x: Any) -> int:
    """Return the number of a dimension of ``x``; raises ProgramError for one that it does not have."""
    result = checks.whole(name, value)
    if result >= len(x.shape):
        checks.wrong_value(name, f"a dimension of a tensor of rank {len(x.shape)}", result)
    return result
