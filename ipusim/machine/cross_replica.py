"""The arithmetic of the sum over replicas: gradients travel in the rounds of a collective, and are divided by R."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ipusim.hardware.collectives.choose import ALGORITHMS
from ipusim.hardware.collectives.run import run
from ipusim.hardware.system import System
from ipusim.machine.executor import Replicas
from ipusim.machine.numpy_executor import NumpyExecutor
from ipusim.machine.shards import Shards
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing.costs import Costs

Array = npt.NDArray[Any]


def replicas_of(
    executors: Sequence[NumpyExecutor], plan: Plan, program: PipelineProgram, system: System, costs: Costs
) -> Replicas:
    """Return the executors of all replicas, in order, with what they do together.

    They average their gradients, and put variables together of which each stores a part.
    """
    total = costs.gradient_sum

    def reduce() -> None:
        if total is not None:
            for executor in executors:
                executor.begin_update()
            average_gradients(executors, plan.ipus, system, total.algorithm)

    if not (program.offload.sharded_state or program.offload.weights):
        return Replicas(tuple(executors), reduce)
    shards = Shards(executors, plan.ipus, system, program.offload)
    return Replicas(tuple(executors), reduce, shards.gather, shards.let_go, shards.gather_all, shards.let_go_of_all)


def average_gradients(executors: Sequence[NumpyExecutor], ipus: Iterable[int], system: System, algorithm: str) -> None:
    """Set the accumulators of all replicas to their mean over the replicas, in place.

    As Graphcore's CrossReplicaOptimizer has it: one all-reduce for each update, after the
    gradients of all micro-batches are accumulated, and a division by the number of replicas.
    The accumulators of one IPU and dtype are one buffer; sums are taken in the order of
    ``algorithm``, a name of an all-reduce. ``ipus`` are numbers within a replica.
    """
    for ipu in ipus:
        held = [executor.accumulators(ipu) for executor in executors]
        group = range(ipu, system.count, system.shards)
        for dtype in dict.fromkeys(array.dtype for array in held[0]):
            mine = [[array for array in arrays if array.dtype == dtype] for arrays in held]
            buffers = [np.concatenate([array.ravel() for array in arrays]) for arrays in mine]
            plan = ALGORITHMS["all_reduce"][algorithm](system, group, len(buffers[0]), dtype.itemsize)
            for arrays, total in zip(mine, run(plan, buffers), strict=True):
                _spread(total / dtype.type(len(executors)), arrays)


def _spread(flat: Array, arrays: Sequence[Array]) -> None:
    """Copy one buffer back into the arrays that it was made of."""
    first = 0
    for array in arrays:
        array[...] = flat[first : first + array.size].reshape(array.shape)
        first += array.size
