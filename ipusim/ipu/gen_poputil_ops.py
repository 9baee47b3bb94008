"""Offer operations of Poplar's utilities, for programs with hand-written optimizers."""

from __future__ import annotations

from functools import cache
from typing import Any

from ipusim.api import functions
from ipusim.ipu.cross_replica_ops import as_number_tensor
from ipusim.ipu.graph.accumulation import Accumulation
from ipusim.ipu.optimizers import mark_gradients
from ipusim.ipu.runtime import checks
from ipusim.ipu.traced.collectives import add_collective


def ipu_stateful_gradient_accumulate(
    input: Any, num_mini_batches: int, verify_usage: bool = True, name: str | None = None
) -> Any:
    """Return the sum of a gradient over mini-batches, for a weight update.

    Args:
        input: gradient of a mini-batch.
        num_mini_batches: mini-batches per weight update.
        verify_usage: without effect: the sum may go to any weight update.
        name: name of the operation.
    """
    accumulation = _accumulation(checks.whole("num_mini_batches", num_mini_batches, least=1))
    ((result, _),) = mark_gradients([(input, None)], lambda _: accumulation, name or "gradient_accumulate")
    return result


@cache
def _accumulation(count: int) -> Accumulation:
    """Return the accumulation of gradients over ``count`` mini-batches."""
    return Accumulation(count)


def ipu_replication_normalise(input: Any, name: str | None = None) -> Any:
    """Divide a tensor by the number of replicas.

    Args:
        input: tensor of numbers.
        name: name of the operation.
    """
    value = as_number_tensor(input)
    return add_collective(
        _normalised, lambda _, gradient: _normalised(gradient), value, value.shape, name or "normalise"
    )


def _normalised(array: Any) -> Any:
    return array / array.dtype.type(functions.surroundings().replica.count)
