"""Compute across replicas and hosts: sums of gradients, and all-gathers of sharded variables.

Sessions use this module to run a Job with real arithmetic. Gradients and variables travel in the rounds of a
collective, and the rounds determine the order of additions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import numpy as np

from ipusim.base.errors import ProgramError
from ipusim.hardware.collectives.choose import ALGORITHMS
from ipusim.hardware.collectives.collective import Collective, Operation
from ipusim.hardware.collectives.run import run
from ipusim.hardware.system import System
from ipusim.machine.executor import Replicas
from ipusim.machine.hosts import Host
from ipusim.machine.numpy_executor import NumpyExecutor
from ipusim.model.layers.layer import Array
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
    Several hosts sum (or average) their gradients too: with ``as_replicas`` after the optimizers have begun the update,
    as replicas do; otherwise before.

    Gradients are averaged like Graphcore's CrossReplicaOptimizer: an all-reduce per weight update, after the
    accumulation over micro-batches, and a division by the number of replicas. An IPU's accumulators of equal dtype form
    a single buffer, or several buffers of at least ``sum_buffer_bytes``, a value of the program.
    """
    total, offload = costs.gradient_sum, program.offload
    shards = Shards(executors, plan.ipus, system, program) if offload.sharded_state or offload.weights else None

    def reduce() -> None:
        if total is None:
            return
        for executor in executors:
            executor.begin_update()
        for ipu in plan.ipus:
            # Several hosts sum up whole gradients.
            scattered = shards if offload.sharded_update and host is None else None
            arrays_of = [executor.accumulators(ipu) for executor in executors]
            arrays_of = arrays_of if scattered is None else scattered.scatter(ipu, total.algorithm)
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
    return replicas if shards is None else shards.join(replicas)


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
    divisor: int,
    buffer_bytes: int | None = None,
) -> None:
    """Replace every group member's arrays by the group's sum, divided by ``divisor``.

    The order of summation is the order of ``algorithm``, the name of an all-reduce.
    """
    sizes = [(array.size, array.itemsize) for array in arrays_of[0]]
    for numbers in sum_buffers(sizes, buffer_bytes):
        dtype = arrays_of[0][numbers[0]].dtype
        arrays_of_buffer = [[arrays[number] for number in numbers] for arrays in arrays_of]
        buffers = [np.concatenate([array.ravel() for array in arrays]) for arrays in arrays_of_buffer]
        collective = ALGORITHMS["all_reduce"][algorithm](system, group, len(buffers[0]), dtype.itemsize)
        ends = np.cumsum([array.size for array in arrays_of_buffer[0]])
        for arrays, total in zip(arrays_of_buffer, run(collective, buffers), strict=True):
            for array, part in zip(arrays, np.split(total / dtype.type(divisor), ends[:-1]), strict=True):
                array[...] = part.reshape(array.shape)


def sum_over_hosts(
    executors: Sequence[NumpyExecutor], ipus: Iterable[int], host: Host, ready: int, *, averaged: bool
) -> int:
    """Set every replica's accumulators to the sum or mean over hosts.

    Returns the largest ``ready`` cycle of the hosts. Summation in host order gives equal bits everywhere.
    """
    ipus = tuple(ipus)
    gradients = [array.copy() for ipu in ipus for array in executors[0].accumulators(ipu)]
    replies = host.exchange("the sum over hosts", (ready, gradients))
    forms = [[(array.shape, array.dtype) for array in arrays] for _, arrays in replies]
    for rank, form in enumerate(forms):
        if form != forms[0]:
            sizes = [sum(array.size for array in replies[host_rank][1]) for host_rank in (0, rank)]
            raise ProgramError(
                "the sum over hosts: expected gradients of the same variables on all hosts, got different gradients "
                f"on host {rank} ({sizes[1]:,} numbers) and on host 0 ({sizes[0]:,})"
            )
    totals = [sum(arrays[1:], arrays[0]) for arrays in zip(*(arrays for _, arrays in replies), strict=True)]
    for executor in executors:
        accumulators = [array for ipu in ipus for array in executor.accumulators(ipu)]
        for array, total in zip(accumulators, totals, strict=True):
            array[...] = total / array.dtype.type(host.count) if averaged else total
    return max(int(time) for time, _ in replies)


class Shards:
    """Variables stored in parts across replicas. An argument ``shard`` is the number of an IPU within its replica.

    Between uses a replica keeps one part of each variable. The rest of the array is NaN, so that a pass without an
    all-gather computes NaN as well.

    An update of parts needs norms of whole variables. So its arithmetic runs later, when the replicas meet to gather
    weights: gradients and states are gathered, and every replica computes the new weights and keeps its part. The
    all-gather then sends the new parts of the weights.
    """

    def __init__(
        self, executors: Sequence[NumpyExecutor], shards: Iterable[int], system: System, program: PipelineProgram
    ) -> None:
        """Release the variables sharded over replicas under ``program``."""
        self._executors = tuple(executors)
        self._shards = tuple(shards)
        self._system = system
        self._program = program
        self._collective = cache(self._find_collective)
        self._release_all()

    def gather(self, shard: int, stage: int | None, algorithm: str) -> None:
        """Gather the weights of ``stage`` on ``shard``; with None, all arrays for the shard's weight update.

        If each replica updates a part, the new weights are gathered after the update.
        """
        if stage is not None or not self._program.offload.sharded_update:
            self._put_together([self._arrays(executor, shard, stage) for executor in self._executors], shard, algorithm)
            return
        self._put_together([self._gradients(executor, shard) for executor in self._executors], shard, "ring")
        self._put_together([self._arrays(executor, shard, None) for executor in self._executors], shard, "ring")
        for replica, executor in enumerate(self._executors):
            executor.update(shard)
            self.release(replica, shard, None)
            self._keep_part(self._weights(executor, shard), replica, shard)
        self._put_together([self._weights(executor, shard) for executor in self._executors], shard, algorithm)

    def join(self, replicas: Replicas) -> Replicas:
        """Return ``replicas`` with the all-gathers of these parts."""
        return replace(
            replicas,
            gather=self.gather,
            updates_together=self._program.offload.sharded_update,
            release=self.release,
            all_gathered=self.all_gathered,
        )

    def scatter(self, shard: int, algorithm: str) -> list[list[Array]]:
        """Average gradients over replicas; each replica keeps the part that its part of the update needs.

        Returns each replica's remaining accumulators: those of variables that every replica updates whole.
        """
        count = len(self._executors)
        gradients = [self._gradients(executor, shard) for executor in self._executors]
        for arrays in zip(*gradients, strict=True):
            collective = self._collective(shard, arrays[0].size, arrays[0].itemsize, algorithm, "reduce_scatter")
            for rank, (array, part) in enumerate(zip(arrays, run(collective, arrays), strict=True)):
                array[...] = np.nan
                array.flat[collective.chunk_of(rank)] = part / part.dtype.type(count)
        scattered = {id(array) for arrays in gradients for array in arrays}
        accumulators = (executor.accumulators(shard) for executor in self._executors)
        return [[array for array in arrays if id(array) not in scattered] for arrays in accumulators]

    def release(self, replica: int, shard: int, stage: int | None) -> None:
        """Keep the replica's part of its arrays, and set other elements to NaN."""
        self._keep_part(self._arrays(self._executors[replica], shard, stage), replica, shard)

    def _keep_part(self, arrays: Iterable[Array], replica: int, shard: int) -> None:
        for array in arrays:
            chunk = self._collective(shard, array.size, array.itemsize, "ring").chunk_of(replica)
            part = array.flat[chunk]  # a copy
            array[...] = np.nan
            array.flat[chunk] = part  # flat works in any memory order, where reshape might write into a copy

    def _put_together(self, tensors: Iterable[Sequence[Array]], shard: int, algorithm: str) -> None:
        """Gather arrays whose parts the replicas store, in every replica."""
        for arrays in zip(*tensors, strict=True):
            collective = self._collective(shard, arrays[0].size, arrays[0].itemsize, algorithm)
            parts = [array.flat[collective.chunk_of(rank)] for rank, array in enumerate(arrays)]
            for array, whole in zip(arrays, run(collective, parts), strict=True):
                array[...] = whole.reshape(array.shape)

    @contextmanager
    def all_gathered(self) -> Iterator[None]:
        """Gather every sharded variable for the duration of the block, outside simulated time."""
        for shard in self._shards:
            self._put_together([self._arrays(executor, shard, None) for executor in self._executors], shard, "ring")
        try:
            yield
        finally:
            self._release_all()

    def _release_all(self) -> None:
        """Release every array in every replica."""
        for shard in self._shards:
            for replica in range(len(self._executors)):
                self.release(replica, shard, None)

    def _find_collective(
        self, shard: int, size: int, itemsize: int, algorithm: str, operation: Operation = "all_gather"
    ) -> Collective:
        """Return a collective among the replicas.

        Results are cached, as choosing the routes of a ring takes longer than the collective.
        """
        group = range(shard, self._system.count, self._system.shards)
        return ALGORITHMS[operation][algorithm](self._system, group, size, itemsize)

    def _arrays(self, executor: NumpyExecutor, shard: int, stage: int | None) -> list[Array]:
        """Return the sharded weights of a stage.

        For stage None, return the sharded weights and optimizer state of the shard.
        """
        stages, offload = executor.stages(shard), self._program.offload
        if stage is not None:
            return list(stages[stage].own_parameters.values())
        arrays: list[Array] = []
        for number in sorted(stages):
            resident, profile = stages[number], self._program.stages[number]
            if offload.weights:
                arrays += resident.own_parameters.values()
            state = [array for array in resident.state.values() if array.ndim]
            if offload.sharded_update:
                arrays += [array for array in state if offload.is_sharded(profile, array.size)]
            elif offload.sharded_state:
                arrays += [array for array in state if array.nbytes >= offload.least_bytes]
        return arrays

    def _gradients(self, executor: NumpyExecutor, shard: int) -> list[Array]:
        """Return a shard's gradient accumulators with updates divided among replicas."""
        stages = executor.stages(shard)
        return [stages[number].accumulators[name] for number, name in self._updated_names(executor, shard)]

    def _weights(self, executor: NumpyExecutor, shard: int) -> list[Array]:
        """Return a shard's weights with updates divided among replicas."""
        stages = executor.stages(shard)
        return [stages[number].own_parameters[name] for number, name in self._updated_names(executor, shard)]

    def _updated_names(self, executor: NumpyExecutor, shard: int) -> Iterator[tuple[int, str]]:
        """Yield stage and name of a shard's variables with updates divided among replicas."""
        for number, resident in sorted(executor.stages(shard).items()):
            for name, array in resident.own_parameters.items():
                if self._program.offload.is_sharded(self._program.stages[number], array.size):
                    yield number, name
