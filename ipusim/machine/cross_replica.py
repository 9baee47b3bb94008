"""Arithmetic across replicas: sums of gradients, also over hosts, and all-gathers of variables.

Gradients and variables travel in the rounds of a collective.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import numpy as np

from ipusim.base.errors import ProgramError
from ipusim.hardware.collectives.choose import ALGORITHMS
from ipusim.hardware.collectives.collective import Collective
from ipusim.hardware.collectives.run import run
from ipusim.hardware.system import System
from ipusim.machine.executor import Replicas
from ipusim.machine.hosts import Host
from ipusim.machine.numpy_executor import NumpyExecutor
from ipusim.model.layers.layer import Array
from ipusim.pipeline.offload import Offload
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing.collectives import copy_groups, sum_buffers
from ipusim.pricing.costs import Costs


def replicas_of(
    executors: Sequence[NumpyExecutor],
    plan: Plan,
    program: PipelineProgram,
    system: System,
    costs: Costs,
    host: Host | None = None,
    *,
    averaged: bool = True,
    as_replicas: bool = True,
) -> Replicas:
    """Return the executor of every replica, in order, with the joint arithmetic.

    Replicas average gradients, all-gather variables stored in parts, and run passes with collectives in lock step.
    Several hosts sum up (or average) gradients as well: if hosts act ``as_replicas``, after the optimizers have begun
    the update, else before.

    Gradients are averaged like Graphcore's CrossReplicaOptimizer: an all-reduce per weight update, after the
    accumulation over micro-batches, and a division by the number of replicas. Accumulators of equal IPU and dtype form
    a single buffer, or several of at least the program's ``sum_buffer_bytes``.
    """
    total = costs.gradient_sum

    def reduce() -> None:
        if total is None:
            return
        for executor in executors:
            executor.begin_update()
        for ipu in plan.ipus:
            arrays_of = [executor.accumulators(ipu) for executor in executors]
            group = range(ipu, system.count, system.shards)
            _sum(arrays_of, group, system, total.algorithm, len(executors), program.sum_buffer_bytes)

    def over_hosts(ready: int) -> int:
        if host is None:
            return ready
        for executor in executors if total is None and as_replicas else ():
            executor.begin_update()
        return sum_over_hosts(executors, plan.ipus, host, ready, averaged=averaged)

    def sum_copies() -> None:
        if costs.copy_sum is not None:
            sum_over_copies(executors, program, system, costs.copy_sum.algorithm)

    replicas = Replicas(tuple(executors), sum_copies=sum_copies, reduce=reduce, sum_over_hosts=over_hosts)
    if costs.collectives:
        from ipusim.machine.in_lock_step import InLockStep  # noqa: PLC0415 - slow import: needs autograd

        replicas = replace(replicas, begin=InLockStep(executors, system, costs).begin)
    if not (program.offload.sharded_state or program.offload.weights):
        return replicas
    shards = Shards(executors, plan.ipus, system, program.offload)
    return replace(replicas, gather=shards.gather, release=shards.release, all_gathered=shards.all_gathered)


def sum_over_copies(
    executors: Sequence[NumpyExecutor], program: PipelineProgram, system: System, algorithm: str
) -> None:
    """Set the accumulators of every stage's copies to the total over micro-batches.

    The total is the sum over copies. Running means are averaged, as every copy processes equally many micro-batches.
    """
    copies = len(program.shape.copies) if program.reduction == "RUNNING_MEAN" else 1
    for group in copy_groups(program.shape, system):
        arrays_of = [executors[ipu // system.shards].accumulators(ipu % system.shards) for ipu in group]
        _sum(arrays_of, group, system, algorithm, copies)


def _sum(
    arrays_of: Sequence[list[Array]],
    group: Sequence[int],
    system: System,
    algorithm: str,
    parts: int,
    buffer_bytes: int | None = None,
) -> None:
    """Replace every group member's arrays by the group's sum, divided by ``parts``.

    The order of summation is the order of ``algorithm``, the name of an all-reduce.
    """
    sizes = [(array.size, array.itemsize) for array in arrays_of[0]]
    for numbers in sum_buffers(sizes, buffer_bytes):
        dtype = arrays_of[0][numbers[0]].dtype
        arrays_of_buffer = [[arrays[number] for number in numbers] for arrays in arrays_of]
        buffers = [np.concatenate([array.ravel() for array in arrays]) for arrays in arrays_of_buffer]
        plan = ALGORITHMS["all_reduce"][algorithm](system, group, len(buffers[0]), dtype.itemsize)
        ends = np.cumsum([array.size for array in arrays_of_buffer[0]])
        for arrays, total in zip(arrays_of_buffer, run(plan, buffers), strict=True):
            for array, part in zip(arrays, np.split(total / dtype.type(parts), ends[:-1]), strict=True):
                array[...] = part.reshape(array.shape)


def sum_over_hosts(
    executors: Sequence[NumpyExecutor], ipus: Iterable[int], host: Host, ready: int, *, averaged: bool
) -> int:
    """Set every replica's accumulators to the sum or mean over hosts.

    Returns the latest ``ready`` cycle of the hosts. The order of summation is the order of hosts, so that every host
    has the same bits.
    """
    ipus = tuple(ipus)
    gradients = [array.copy() for ipu in ipus for array in executors[0].accumulators(ipu)]
    brought = host.exchange("the sum over hosts", (ready, gradients))
    forms = [[(array.shape, array.dtype) for array in arrays] for _, arrays in brought]
    for rank, form in enumerate(forms):
        if form != forms[0]:
            sizes = [sum(array.size for array in brought[host_rank][1]) for host_rank in (0, rank)]
            raise ProgramError(
                f"the sum over hosts: expected gradients of the same variables on all hosts, got others on host {rank} "
                f"({sizes[1]:,} numbers) than on host 0 ({sizes[0]:,})"
            )
    totals = [sum(arrays[1:], arrays[0]) for arrays in zip(*(arrays for _, arrays in brought), strict=True)]
    for executor in executors:
        accumulators = [array for ipu in ipus for array in executor.accumulators(ipu)]
        for array, total in zip(accumulators, totals, strict=True):
            array[...] = total / array.dtype.type(host.count) if averaged else total
    return max(int(when) for when, _ in brought)


class Shards:
    """Variables stored in parts across replicas.

    Between uses a replica keeps a single part. The rest of the array is NaN, so that a pass without an all-gather gives
    NaN as well.
    """

    def __init__(
        self, executors: Sequence[NumpyExecutor], shards: Iterable[int], system: System, offload: Offload
    ) -> None:
        """Release the variables sharded over replicas under ``offload``."""
        self._executors = tuple(executors)
        self._shards = tuple(shards)
        self._system = system
        self._offload = offload
        self._plan = cache(self._found_plan)
        self._release_all()

    def gather(self, shard: int, stage: int | None, algorithm: str) -> None:
        """Gather the weights of ``stage`` on ``shard``.

        For stage None, gather the arrays of the shard's weight update.
        """
        stored = [self._arrays(executor, shard, stage) for executor in self._executors]
        for arrays in zip(*stored, strict=True):
            plan = self._plan(shard, arrays[0].size, arrays[0].itemsize, algorithm)
            parts = [array.flat[plan.chunk_of(rank)] for rank, array in enumerate(arrays)]
            for array, whole in zip(arrays, run(plan, parts), strict=True):
                array[...] = whole.reshape(array.shape)

    def release(self, replica: int, shard: int, stage: int | None) -> None:
        """Set a replica's arrays to NaN except the stored part."""
        for array in self._arrays(self._executors[replica], shard, stage):
            own = self._plan(shard, array.size, array.itemsize, "ring").chunk_of(replica)
            part = array.flat[own]  # a copy
            array[...] = np.nan
            array.flat[own] = part  # independent of the memory order, where reshape may write into a copy

    @contextmanager
    def all_gathered(self) -> Iterator[None]:
        """Gather every sharded variable for the duration of the block, outside simulated time."""
        for shard in self._shards:
            self.gather(shard, None, "ring")
        try:
            yield
        finally:
            self._release_all()

    def _release_all(self) -> None:
        """Release every array in every replica."""
        for shard in self._shards:
            for replica in range(len(self._executors)):
                self.release(replica, shard, None)

    def _found_plan(self, shard: int, size: int, itemsize: int, algorithm: str) -> Collective:
        """Return an all-gather.

        Results are cached, as choosing the routes of a ring takes longer than the gather.
        """
        group = range(shard, self._system.count, self._system.shards)
        return ALGORITHMS["all_gather"][algorithm](self._system, group, size, itemsize)

    def _arrays(self, executor: NumpyExecutor, shard: int, stage: int | None) -> list[Array]:
        """Return the sharded weights of a stage.

        For stage None, return the sharded weights and optimizer state of the shard.
        """
        stages, offload = executor.stages(shard), self._offload
        if stage is not None:
            return list(stages[stage].parameters.values())
        arrays: list[Array] = []
        for resident in (stages[number] for number in sorted(stages)):
            if offload.weights:
                arrays += resident.parameters.values()
            if offload.sharded_state:
                state = resident.state.values()
                arrays += [array for array in state if array.ndim and array.nbytes >= offload.least_bytes]
        return arrays
