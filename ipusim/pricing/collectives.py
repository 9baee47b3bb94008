"""Price collectives of a program on a System: gradient sums, all-gathers, and collectives inside passes.

Collectives take place among replicas, among copies of a stage, among hosts, or between IPUs and their host. Functions
take a Plan's side instructions as ``side``, and return None if the program lacks their collective.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Final

import numpy as np
import numpy.typing as npt

from ipusim.hardware import host_network
from ipusim.hardware.collectives.choose import (
    ALGORITHMS,
    Call,
    cycles_by_algorithm,
    fastest,
    fastest_all_reduce,
    fastest_in_turn,
)
from ipusim.hardware.collectives.collective import Operation
from ipusim.hardware.formulas import Cycles, total
from ipusim.hardware.system import System
from ipusim.lowering.side_instructions import SideInstructions
from ipusim.model.collective_call import CollectiveCall
from ipusim.model.profile import StageProfile
from ipusim.pipeline.offload import Offload, UpdatedVariable
from ipusim.pipeline.program import PipelineProgram
from ipusim.pipeline.shape import PlanShape
from ipusim.pricing import laws
from ipusim.pricing.costs import HostSum, HostUpdate, PassCollective, ReplicaCollective

#: A norm's elements and itemsize: one number of 32 bits. PopART sums up two norms of a variable over the replicas,
#: of the weights and of the step (popart d2f20d7, willow/src/op/lamb.cpp, adamdecompose.cpp).
_NORM: Final = (1, 4)
_NORMS: Final = 2


def accumulators_by_ipu(program: PipelineProgram) -> dict[int, int]:
    """Return the bytes of gradient accumulators per IPU of a replica, in ascending order."""
    return by_ipu(program, lambda profile: profile.accumulator_bytes)


def by_ipu(program: PipelineProgram, size_of: Callable[[StageProfile], int]) -> dict[int, int]:
    """Return the sum of ``size_of(stage)`` per IPU of a replica, in ascending order."""
    total = dict.fromkeys(sorted(program.shape.mapping), 0)
    for stage, ipu in program.shape.homes:
        total[ipu] += size_of(program.stages[stage])
    return total


def copy_sum(program: PipelineProgram, system: System, side: SideInstructions) -> ReplicaCollective | None:
    """Return the gradient sum among copies of stages within each replica; None if no stage has copies.

    IPUs that hold copies of the same stages form a group. The accumulators of an IPU form a single buffer.
    """
    if not side.has_copy_sum:
        return None
    sizes, itemsize = _summed_by_ipu(program)
    groups = copy_groups(program.shape, system)
    elements = [-(-sizes.get(group[0] % system.shards, 0) // itemsize) for group in groups]
    plans, cost = fastest_all_reduce(system, groups, elements, itemsize)
    return ReplicaCollective(plans[0].algorithm, cost, sum(accumulators_by_ipu(program).values()))


def _summed_by_ipu(program: PipelineProgram) -> tuple[dict[int, int], int]:
    """Return the bytes to sum per IPU of a replica, and the smallest itemsize.

    If every trained variable resides on the host, IPUs only meet over a single element, and the host sums.
    """
    sizes = accumulators_by_ipu(program)
    widths = [profile.accumulator_itemsize for profile in program.stages if profile.accumulator_bytes]
    itemsize = min(widths, default=1)
    return {ipu: size for ipu, size in sizes.items() if size} or dict.fromkeys(list(sizes)[:1], itemsize), itemsize


def copy_groups(shape: PlanShape, system: System) -> list[tuple[int, ...]]:
    """Return the groups of IPUs with copies of the same stages, replica by replica."""
    firsts = range(0, system.count, system.shards)
    return [tuple(first + ipu for ipu in group) for first in firsts for group in shape.ipus_of_equal_stages]


def gradient_sum(program: PipelineProgram, system: System, side: SideInstructions) -> ReplicaCollective | None:
    """Return the gradient sum among the replicas of ``system``. None if replicas sum nothing.

    By default an IPU's accumulators form a single buffer, and the IPUs sum simultaneously. If the program states a
    buffer size, buffers are summed one after another, IPU after IPU. The algorithm with the smallest total time wins. A
    sharded update uses a reduce-scatter of gradients padded to equal parts, unless several hosts sum whole gradients.
    """
    if not side.has_replica_sum:
        return None
    scatters = program.offload.sharded_update and not side.has_host_sum
    whole_sum = program.sum_buffer_bytes is None and not scatters
    if whole_sum or not any(accumulators_by_ipu(program).values()):
        return all_reduce_cycles(system, *_summed_by_ipu(program))
    variables = _updated_by_ipu(program)
    scattered = {ipu: _scattered(ipu_variables, system, scatters) for ipu, ipu_variables in variables.items()}
    reduced = {ipu: _reduced(ipu_variables, scatters) for ipu, ipu_variables in variables.items()}
    batches = [
        *_batches("reduce_scatter", scattered, program, system),
        *_batches("all_reduce", reduced, program, system),
    ]
    algorithm, cost = fastest_in_turn(system, batches)
    return ReplicaCollective(algorithm, cost, sum(accumulators_by_ipu(program).values()))


def _scattered(variables: Sequence[UpdatedVariable], system: System, scatters: bool) -> list[tuple[int, int]]:
    return [_padded(variable.gradient, system) for variable in variables if variable.sharded and scatters]


def _reduced(variables: Sequence[UpdatedVariable], scatters: bool) -> list[tuple[int, int]]:
    return [variable.gradient for variable in variables if not (variable.sharded and scatters)]


def _norms(profile: StageProfile, offload: Offload) -> list[tuple[int, int]]:
    """Return the norms that replicas sum for the sharded variables of a stage."""
    works = () if isinstance(profile.update, int) else profile.update
    pairs = zip(works, offload.variables_of(profile), strict=False)
    has_norms = [variable.sharded and work.vector.reductions > 0 for work, variable in pairs]
    return [_NORM] * (_NORMS * sum(has_norms))


def cycles_in_turn(
    profiles: Sequence[StageProfile], offload: Offload, system: System, ipus: Sequence[int]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return each stage's cycles for gradient sums and gathers, variable by variable, on each of ``ipus``.

    Both arrays have shape (algorithms, ipus, stages); cycles are infinite for an algorithm that lacks an operation. If
    the program states a buffer size of 0, an IPU's time for all collectives is the sum over its stages, for the
    algorithm with the least sum.
    """
    names = list(dict.fromkeys(name for algorithms in ALGORITHMS.values() for name in algorithms))
    result = np.zeros((2, len(names), len(ipus), len(profiles)))
    known: dict[tuple[Operation, int, tuple[int, int]], npt.NDArray[np.float64]] = {}
    for stage, profile in enumerate(profiles):
        variables, scatters = list(offload.variables_of(profile)), offload.sharded_update
        gathered = [_padded(variable.weight, system) for variable in variables if variable.sharded]
        tensors_of: list[tuple[int, Operation, list[tuple[int, int]]]] = [
            (0, "reduce_scatter", _scattered(variables, system, scatters)),
            (0, "all_reduce", _reduced(variables, scatters)),
            (1, "all_reduce", _norms(profile, offload)),
            (1, "all_gather", gathered),
        ]
        for (number, operation, tensors), (place, ipu) in product(tensors_of, enumerate(ipus)):
            for tensor in tensors:
                if (key := (operation, ipu, tensor)) not in known:
                    call = Call(operation, range(ipu, system.count, system.shards), *tensor)
                    cycles = cycles_by_algorithm(system, call)
                    known[key] = np.array([cycles.get(name, np.inf) for name in names])
                result[number, :, place, stage] += known[key]
    return result[0], result[1]


def _updated_by_ipu(program: PipelineProgram) -> dict[int, list[UpdatedVariable]]:
    """Return the variables changed by each IPU's weight update."""
    variables: dict[int, list[UpdatedVariable]] = {ipu: [] for ipu in sorted(program.shape.mapping)}
    for stage, ipu in program.shape.homes:
        variables[ipu] += program.offload.variables_of(program.stages[stage])
    return variables


def _padded(tensor: tuple[int, int], system: System) -> tuple[int, int]:
    """Return the elements and itemsize of a tensor padded to equal parts for all replicas."""
    return -(-tensor[0] // system.replicas) * system.replicas, tensor[1]


def _batches(
    operation: Operation, tensors: Mapping[int, Sequence[tuple[int, int]]], program: PipelineProgram, system: System
) -> list[list[Call]]:
    """Return the collectives of replicas over each IPU's tensors, as lists of simultaneous calls.

    A stated buffer size merges the tensors of all-reduces alone: by default neither Graphcore's TensorFlow nor PopART
    merges reduce-scatters or all-gathers (maximum_reduce_scatter_buffer_size and maximum_all_gather_buffer_size in
    config.py, mergeReduceScatterCollectives and mergeAllGatherCollectives in sessionoptions.hpp).
    """
    size = program.sum_buffer_bytes
    least_bytes = size if size is None or operation == "all_reduce" else 0
    calls = [
        Call(
            operation,
            range(ipu, system.count, system.shards),
            sum(ipu_tensors[number][0] for number in buffer),
            ipu_tensors[buffer[0]][1],
        )
        for ipu, ipu_tensors in tensors.items()
        for buffer in sum_buffers(ipu_tensors, least_bytes)
    ]
    return [[call] for call in calls] if size is not None else [calls] if calls else []


def sum_buffers(tensors: Sequence[tuple[int, int]], least_bytes: int | None) -> Iterator[list[int]]:
    """Yield the indices of an IPU's gradients that replicas sum together.

    Gradients of one type wait until their bytes reach ``least_bytes``, like Graphcore's compiler with
    ``maximum_cross_replica_sum_buffer_size`` (tools/instruction_colocator_helper.h). With 0 no gradient waits.

    Args:
        tensors: (elements, itemsize) per gradient.
        least_bytes: bytes that trigger the sum of waiting gradients; None merges every gradient of a type.
    """
    buffers: dict[int, list[int]] = {}
    waiting_bytes = Counter[int]()
    for number, (elements, itemsize) in enumerate(tensors):
        buffers.setdefault(itemsize, []).append(number)
        waiting_bytes[itemsize] += elements * itemsize
        if least_bytes is not None and waiting_bytes[itemsize] >= least_bytes:
            yield buffers.pop(itemsize)
            del waiting_bytes[itemsize]
    yield from buffers.values()


def all_reduce_cycles(system: System, sizes: Mapping[int, int], itemsize: int) -> ReplicaCollective:
    """Return simultaneous all-reduces of ``sizes`` bytes per IPU, in every replica."""
    groups = [range(ipu, system.count, system.shards) for ipu in sizes]
    plans, cost = fastest_all_reduce(system, groups, [-(-size // itemsize) for size in sizes.values()], itemsize)
    return ReplicaCollective(plans[0].algorithm, cost, sum(sizes.values()))


def all_gathers(system: System, sizes: Mapping[int, int]) -> dict[int, ReplicaCollective]:
    """Return simultaneous all-gathers of ``sizes`` bytes per IPU, in every replica."""
    groups = [range(ipu, system.count, system.shards) for ipu in sizes]
    plans, cost = fastest("all_gather", system, groups, list(sizes.values()), 1)
    return {ipu: ReplicaCollective(plans[0].algorithm, cost, size) for ipu, size in sizes.items()}


def host_sum(program: PipelineProgram, system: System, side: SideInstructions) -> HostSum | None:
    """Return the cost of the gradient sum over hosts; None if hosts sum nothing.

    The IPUs copy accumulators to the host and back simultaneously. Hosts sum the accumulators of a single replica. Over
    links, IPUs sum with their counterparts on other hosts instead, also simultaneously.
    """
    if not side.has_host_sum:
        return None
    accumulators = accumulators_by_ipu(program)
    most, total = max(accumulators.values()), sum(accumulators.values())
    if system.joined is not None:
        return HostSum(0, 0, 0, total, over_links=_sum_over_links(program, system, system.joined))
    return HostSum(
        write=laws.SUM_OUT(system.outfeed_cycles(most)),
        network=laws.NETWORK_SUM(host_network.sum_cycles(system, total)),
        read=0 if side.has_host_update else laws.SUM_IN(system.infeed_cycles(most)),
        bytes=total,
    )


def host_update(program: PipelineProgram, system: System, side: SideInstructions) -> HostUpdate | None:
    """Return the cost of the host's weight update. None if IPUs update weights.

    All IPUs copy accumulators to the host at once, and read the weights back. After a sum over replicas, one replica's
    accumulators suffice. The host's arithmetic keeps up with reads of gradients and writes of weights (assumed).
    """
    if not side.has_host_update:
        return None
    gradients, weights = accumulators_by_ipu(program), by_ipu(program, lambda profile: profile.parameter_bytes)
    write, apply, read = host_update_cycles(system, max(gradients.values()), max(weights.values()))
    is_summed = side.has_host_sum and system.joined is None
    return HostUpdate(
        write=0 if is_summed else write,
        apply=apply,
        read=read,
        gradients=sum(gradients.values()),
        weights=sum(weights.values()),
    )


def host_update_cycles(system: System, gradients: int, weights: int) -> tuple[int, int, int]:
    """Return the cycles of copies to the host, host work, and copies back."""
    return (
        laws.SUM_OUT(system.outfeed_cycles(gradients)),
        laws.UPDATE_ON_HOST(Cycles(total, system.host_drain_cycles(gradients), system.host_fill_cycles(weights))),
        laws.WEIGHTS_IN(system.infeed_cycles(weights)),
    )


def _sum_over_links(program: PipelineProgram, system: System, device: System) -> ReplicaCollective:
    """Return the all-reduces among the IPUs of different hosts; ``device`` numbers IPUs host by host."""
    sizes, itemsize = _summed_by_ipu(program)
    groups, elements = [], []
    for ipu, size in sizes.items():
        for shard in range(ipu, system.count, system.shards):
            groups.append(range(shard, system.hosts * system.count, system.count))
            elements.append(-(-size // itemsize))
    plans, cost = fastest_all_reduce(device, groups, elements, itemsize)
    return ReplicaCollective(plans[0].algorithm, cost, sum(accumulators_by_ipu(program).values()))


def weight_gathers(program: PipelineProgram, system: System, side: SideInstructions) -> dict[int, ReplicaCollective]:
    """Return the all-gather before every pass of a stage with weights sharded over replicas.

    Prices assume links without other traffic. If a stage has copies, the slowest copy's all-gather counts.
    """
    gathers = {}
    for stage in sorted(side.gathering_stages):
        size = program.stages[stage].parameter_bytes
        ways = [all_gathers(system, {ipu: size})[ipu] for ipu in program.shape.ipus_of(stage)]
        gathers[stage] = max(ways, key=lambda way: way.cost.total_cycles)
    return gathers


def update_gathers(program: PipelineProgram, system: System, side: SideInstructions) -> dict[int, ReplicaCollective]:
    """Return the all-gathers at a weight update, by IPU; only IPUs with weights or state in shards have an all-gather.

    Before an update of whole variables, all IPUs gather weights and optimizer state at once. After a sharded update,
    replicas gather the new weights; if the program states a buffer size, they gather variable by variable, IPU after
    IPU. The cost of a sharded update includes all-reduces of norms (LAMB).
    """
    if not side.gathering_ipus:
        return {}
    sizes = dict.fromkeys(sorted(side.gathering_ipus), 0)
    for stage, shard in program.shape.homes:
        if shard in sizes:
            sizes[shard] += program.offload.gathered_bytes(program.stages[stage])
    if not program.offload.sharded_update:
        return all_gathers(system, sizes)
    variables = _updated_by_ipu(program)
    parts = {
        ipu: [_padded(variable.weight, system) for variable in ipu_variables if variable.sharded]
        for ipu, ipu_variables in variables.items()
    }
    norms: dict[int, list[tuple[int, int]]] = {ipu: [] for ipu in variables}
    for stage, ipu in program.shape.homes:
        norms[ipu] += _norms(program.stages[stage], program.offload)
    batches = [*_batches("all_reduce", norms, program, system), *_batches("all_gather", parts, program, system)]
    algorithm, cost = fastest_in_turn(system, batches)
    return {ipu: ReplicaCollective(algorithm, cost, size) for ipu, size in sizes.items()}


def pass_collectives(
    kinds: tuple[int, ...], program: PipelineProgram, system: System, side: SideInstructions
) -> dict[tuple[int, int], tuple[PassCollective, ...]]:
    """Return collectives by (pass, stage) for these pass kinds, in order.

    All replicas (or groups of replicas) run a stage's collective simultaneously. Prices assume links without traffic of
    other stages. The algorithm with the smallest total time wins.
    """
    prices: dict[tuple[int, CollectiveCall], PassCollective] = {}

    def price(shard: int, call: CollectiveCall) -> PassCollective:
        if (shard, call) not in prices:
            size = call.elements(system.replicas)
            groups = [[replica * system.shards + shard for replica in group] for group in call.groups(system.replicas)]
            plans, cost = fastest(call.operation, system, groups, [size] * len(groups), call.itemsize)
            prices[shard, call] = PassCollective(plans[0].algorithm, cost, size * call.itemsize, call)
        return prices[shard, call]

    return {
        (kind, stage): tuple(
            max((price(ipu, call) for ipu in program.shape.ipus_of(stage)), key=lambda way: way.cost.total_cycles)
            for call in program.collectives(kind, stage)
        )
        for kind, stage in sorted(side.collective_passes)
        if kind in kinds
    }
