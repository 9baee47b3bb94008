"""The arithmetic that replicas do together: sums of gradients, over hosts too, and all-gathers of variables.

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
    """Return the executors of all replicas, in order, with what they do together.

    They average their gradients, put variables together of which each stores a part, and run passes in lock step that
    call collectives. Where this is one ``host`` of several, these sum gradients up, or average them too, when
    optimizers have begun their update ``as_replicas`` do, or before.

    Gradients are averaged as Graphcore's CrossReplicaOptimizer has it: one all-reduce for each update, after the
    gradients of all micro-batches are accumulated, and a division by the number of replicas. The accumulators of one
    IPU and dtype are one buffer, or several of the program's ``sum_buffer_bytes`` at least.
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
        from ipusim.machine.in_lock_step import InLockStep  # noqa: PLC0415 - it needs autograd, which takes a while

        replicas = replace(replicas, begin=InLockStep(executors, system, costs).begin)
    if not (program.offload.sharded_state or program.offload.weights):
        return replicas
    shards = Shards(executors, plan.ipus, system, program.offload)
    return replace(replicas, gather=shards.gather, release=shards.release, all_gathered=shards.all_gathered)


def sum_over_copies(
    executors: Sequence[NumpyExecutor], program: PipelineProgram, system: System, algorithm: str
) -> None:
    """Set the accumulators of all copies of a stage to what one copy would have accumulated of all micro-batches.

    That is their sum, or where each has a running mean of its own, as many micro-batches in all copies, the mean.
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
    """Set the arrays that each IPU of a ``group`` has to their sum over it, divided by ``parts``, in place.

    Sums are taken in the order of ``algorithm``, a name of an all-reduce.
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
    """Set the accumulators of all replicas to their sum, or mean, over the hosts; return when the last was ``ready``.

    Sums are taken in the order of the hosts, so that all have the same bits.
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
    """The parts of all replicas' variables.

    Between uses a replica keeps its own part alone: the rest of each array is not a
    number, so that a pass without its all-gather gives no number either.
    """

    def __init__(
        self, executors: Sequence[NumpyExecutor], shards: Iterable[int], system: System, offload: Offload
    ) -> None:
        """Release, in each replica, all but its own part of what ``offload`` spreads over replicas."""
        self._executors = tuple(executors)
        self._shards = tuple(shards)
        self._system = system
        self._offload = offload
        self._plan = cache(self._found_plan)
        self._release_all()

    def gather(self, shard: int, stage: int | None, algorithm: str) -> None:
        """Gather the weights of ``stage`` on ``shard``, or (None) all arrays that its weight update needs."""
        stored = [self._arrays(executor, shard, stage) for executor in self._executors]
        for arrays in zip(*stored, strict=True):
            plan = self._plan(shard, arrays[0].size, arrays[0].itemsize, algorithm)
            parts = [array.flat[plan.chunk_of(rank)] for rank, array in enumerate(arrays)]
            for array, whole in zip(arrays, run(plan, parts), strict=True):
                array[...] = whole.reshape(array.shape)

    def release(self, replica: int, shard: int, stage: int | None) -> None:
        """Set all but the replica's own part of its arrays to NaN."""
        for array in self._arrays(self._executors[replica], shard, stage):
            own = self._plan(shard, array.size, array.itemsize, "ring").chunk_of(replica)
            part = array.flat[own]  # a copy
            array[...] = np.nan
            array.flat[own] = part  # whatever the order of the array in memory, where reshape may write into a copy

    @contextmanager
    def all_gathered(self) -> Iterator[None]:
        """Gather all that is spread over replicas for the block, outside of simulated time."""
        for shard in self._shards:
            self.gather(shard, None, "ring")
        try:
            yield
        finally:
            self._release_all()

    def _release_all(self) -> None:
        """Release all arrays in all replicas."""
        for shard in self._shards:
            for replica in range(len(self._executors)):
                self.release(replica, shard, None)

    def _found_plan(self, shard: int, size: int, itemsize: int, algorithm: str) -> Collective:
        """Return an all-gather; found once, as to compare routes for a ring takes longer than what it gathers."""
        group = range(shard, self._system.count, self._system.shards)
        return ALGORITHMS["all_gather"][algorithm](self._system, group, size, itemsize)

    def _arrays(self, executor: NumpyExecutor, shard: int, stage: int | None) -> list[Array]:
        """Return a stage's weights that are spread over replicas, or (None) a shard's weights and optimizer state."""
        stages, offload = executor.stages(shard), self._offload
        if stage is not None:
            return list(stages[stage].own.values())
        arrays: list[Array] = []
        for resident in (stages[number] for number in sorted(stages)):
            if offload.weights:
                arrays += resident.own.values()
            if offload.sharded_state:
                state = resident.state.values()
                arrays += [array for array in state if array.ndim and array.nbytes >= offload.least_bytes]
        return arrays
