"""Functions of Graphcore's ``cross_replica_ops``."""

from __future__ import annotations

from typing import Any

from ipusim.ipu import checks
from ipusim.ipu.collective_arguments import check_inside, factor, tensor


def cross_replica_sum(x: Any, replica_group_size: int | None = None, name: str | None = None) -> Any:
    """Return the sum of ``x`` over all replicas, or over those of each group of so many in a row.

    Its gradient is the cross replica sum of the gradient, as in Graphcore's. Raises ProgramError outside of a stage,
    ProgramTypeError for what is no tensor of numbers; a size that does not divide the number of replicas is refused
    when the device is known.
    """
    size = None if replica_group_size is None else factor("replica_group_size", replica_group_size)
    x = tensor(x)
    check_inside("cross_replica_sum")
    if size == 1:
        return x
    from ipusim.model.functions import collectives  # noqa: PLC0415 - autograd takes a while to import

    return collectives.all_reduce(x, size)


def assume_equal_across_replicas(tensors: Any, inplace: bool = False) -> Any:
    """Return ``tensors`` as they are: conditions of a simulated program are Python's, and may differ in replicas."""
    checks.truth("inplace", inplace)
    return tensors
