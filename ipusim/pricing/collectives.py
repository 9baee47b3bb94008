"""Costs of collectives among replicas: sums of gradients, all-gathers of variables, and those that passes call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from ipusim.hardware import host_network
from ipusim.hardware.collectives.choose import Call, fastest, fastest_all_reduce, fastest_in_turn
from ipusim.hardware.collectives.collective import Operation
from ipusim.hardware.formulas import Cycles, total
from ipusim.hardware.system import System
from ipusim.lowering.side_instructions import SideInstructions
from ipusim.model.collective_call import CollectiveCall
from ipusim.model.profile import StageProfile
from ipusim.pipeline.offload import UpdatedVariable
from ipusim.pipeline.program import PipelineProgram
from ipusim.pipeline.shape import PlanShape
from ipusim.pricing import laws
from ipusim.pricing.costs import HostSum, HostUpdate, PassCollective, ReplicaCollective

#: Elements and bytes of an element of a norm of a variable, one number of 32 bits.
_NORM: Final = (1, 4)


def accumulators_by_ipu(program: PipelineProgram) -> dict[int, int]:
    """Return the bytes of the gradient accumulators on each IPU of a replica, in rising order of the IPUs."""
    return by_ipu(program, lambda profile: profile.accumulator_bytes)


def by_ipu(program: PipelineProgram, of: Callable[[StageProfile], int]) -> dict[int, int]:
    """Return the sum of something of the stages on each IPU of a replica, in rising order of the IPUs."""
    total = dict.fromkeys(sorted(program.shape.mapping), 0)
    for stage, ipu in program.shape.homes:
        total[ipu] += of(program.stages[stage])
    return total


def copy_sum(program: PipelineProgram, system: System, side: SideInstructions) -> ReplicaCollective | None:
    """Return how the copies of each stage sum up their gradients, in each replica; None where there is one copy.

    Two IPUs that hold the same stages are a group, and the accumulators of either are one buffer.
    """
    if not side.copies_summed:
        return None
    sizes, itemsize = _summed_by_ipu(program)
    groups = copy_groups(program.shape, system)
    elements = [-(-sizes.get(group[0] % system.shards, 0) // itemsize) for group in groups]
    plans, cost = fastest_all_reduce(system, groups, elements, itemsize)
    return ReplicaCollective(plans[0].algorithm, cost, sum(accumulators_by_ipu(program).values()))


def _summed_by_ipu(program: PipelineProgram) -> tuple[dict[int, int], int]:
    """Return the bytes that IPUs of a replica sum up, of those that have any, and the bytes of the smallest element.

    Where all that learns lies on the host, IPUs meet over an element: the host sums up for them.
    """
    sizes = accumulators_by_ipu(program)
    widths = [profile.accumulator_itemsize for profile in program.stages if profile.accumulator_bytes]
    itemsize = min(widths, default=1)
    return {ipu: size for ipu, size in sizes.items() if size} or dict.fromkeys(list(sizes)[:1], itemsize), itemsize


def copy_groups(shape: PlanShape, system: System) -> list[tuple[int, ...]]:
    """Return the IPUs that hold the same stages, of each replica in turn."""
    firsts = range(0, system.count, system.shards)
    return [tuple(first + ipu for ipu in group) for first in firsts for group in shape.alike]


def gradient_sum(program: PipelineProgram, system: System, side: SideInstructions) -> ReplicaCollective | None:
    """Return how the replicas of ``system`` sum up their gradients; None where they have nothing to sum up.

    Each IPU's accumulators are one buffer, and those of all IPUs are summed up at once; or buffers are as large as the
    program says, and one follows the other, IPU after IPU. The fastest algorithm for all of them is taken. A sharded
    update takes a reduce-scatter of its gradients, padded to equal parts.
    """
    if not side.summed:
        return None
    whole_sum = program.sum_buffer_bytes is None and not program.offload.sharded_update
    if whole_sum or not any(accumulators_by_ipu(program).values()):
        return all_reduce_cycles(system, *_summed_by_ipu(program))
    variables = _updated_by_ipu(program)
    scattered = {ipu: [_padded(one.gradient, system) for one in own if one.sharded] for ipu, own in variables.items()}
    reduced = {ipu: [one.gradient for one in own if not one.sharded] for ipu, own in variables.items()}
    batches = [
        *_batches("reduce_scatter", scattered, program, system),
        *_batches("all_reduce", reduced, program, system),
    ]
    algorithm, cost = fastest_in_turn(system, batches)
    return ReplicaCollective(algorithm, cost, sum(accumulators_by_ipu(program).values()))


def _updated_by_ipu(program: PipelineProgram) -> dict[int, list[UpdatedVariable]]:
    """Return the variables that the weight update of each IPU changes."""
    variables: dict[int, list[UpdatedVariable]] = {ipu: [] for ipu in sorted(program.shape.mapping)}
    for stage, ipu in program.shape.homes:
        variables[ipu] += program.offload.updated(program.stages[stage])
    return variables


def _padded(tensor: tuple[int, int], system: System) -> tuple[int, int]:
    """Return the elements and itemsize of a tensor with equally long parts for all replicas."""
    return -(-tensor[0] // system.replicas) * system.replicas, tensor[1]


def _batches(
    operation: Operation, tensors: Mapping[int, Sequence[tuple[int, int]]], program: PipelineProgram, system: System
) -> list[list[Call]]:
    """Return the collectives of replicas over tensors of each IPU, merged as the program's sums of gradients are."""
    calls = [
        Call(
            operation,
            range(ipu, system.count, system.shards),
            sum(own[number][0] for number in buffer),
            own[buffer[0]][1],
        )
        for ipu, own in tensors.items()
        for buffer in sum_buffers(own, program.sum_buffer_bytes)
    ]
    return [[call] for call in calls] if program.sum_buffer_bytes is not None else [calls] if calls else []


def sum_buffers(tensors: Sequence[tuple[int, int]], least_bytes: int | None) -> Iterator[list[int]]:
    """Yield the numbers of the gradients of an IPU that replicas sum up together.

    Those of one type wait for each other until they have ``least_bytes`` together, as Graphcore's compiler has it with
    ``maximum_cross_replica_sum_buffer_size`` (tools/instruction_colocator_helper.h); with 0 none waits.

    Args:
        tensors: elements of each gradient, and the bytes of one.
        least_bytes: at which those that wait are summed up; None for all of one type at once.
    """
    waiting: dict[int, list[int]] = {}
    waiting_bytes = Counter[int]()
    for number, (elements, itemsize) in enumerate(tensors):
        waiting.setdefault(itemsize, []).append(number)
        waiting_bytes[itemsize] += elements * itemsize
        if least_bytes is not None and waiting_bytes[itemsize] >= least_bytes:
            yield waiting.pop(itemsize)
            del waiting_bytes[itemsize]
    yield from waiting.values()


def all_reduce_cycles(system: System, sizes: Mapping[int, int], itemsize: int) -> ReplicaCollective:
    """Return the all-reduces of buffers of so many bytes on each IPU of a replica, in all replicas and all at once."""
    groups = [range(ipu, system.count, system.shards) for ipu in sizes]
    plans, cost = fastest_all_reduce(system, groups, [-(-size // itemsize) for size in sizes.values()], itemsize)
    return ReplicaCollective(plans[0].algorithm, cost, sum(sizes.values()))


def all_gathers(system: System, sizes: Mapping[int, int]) -> dict[int, ReplicaCollective]:
    """Return the all-gathers of so many bytes on each IPU of a replica, in all replicas and all at once."""
    groups = [range(ipu, system.count, system.shards) for ipu in sizes]
    plans, cost = fastest("all_gather", system, groups, list(sizes.values()), 1)
    return {ipu: ReplicaCollective(plans[0].algorithm, cost, size) for ipu, size in sizes.items()}


def host_sum(program: PipelineProgram, system: System, side: SideInstructions) -> HostSum | None:
    """Return the cost of the sum over hosts; None where there is one host, or nothing to sum up.

    Each IPU copies its accumulators to the host and back, all at once; the hosts sum up those of one replica. Over
    links each IPU sums up with its likes of the other hosts, all at once.
    """
    if not side.summed_by_hosts:
        return None
    accumulators = accumulators_by_ipu(program)
    most, every = max(accumulators.values()), sum(accumulators.values())
    if system.joined is not None:
        return HostSum(0, 0, 0, every, over_links=_sum_over_links(program, system, system.joined))
    return HostSum(
        write=laws.SUM_OUT(system.outfeed_cycles(most)),
        network=laws.NETWORK_SUM(host_network.sum_cycles(system, every)),
        read=0 if side.updated_by_host else laws.SUM_IN(system.infeed_cycles(most)),
        bytes=every,
    )


def host_update(program: PipelineProgram, system: System, side: SideInstructions) -> HostUpdate | None:
    """Return the cost of the weight update on the host; None where IPUs do it.

    Each IPU copies its accumulators to the host, of one replica where these have summed up, and its weights back, all
    at once. The host's arithmetic is as fast as it reads gradients from its buffers and writes weights there (assumed).
    """
    if not side.updated_by_host:
        return None
    gradients, weights = accumulators_by_ipu(program), by_ipu(program, lambda profile: profile.parameter_bytes)
    write, apply, read = host_update_cycles(system, max(gradients.values()), max(weights.values()))
    there = side.summed_by_hosts and system.joined is None
    return HostUpdate(
        write=0 if there else write,
        apply=apply,
        read=read,
        gradients=sum(gradients.values()),
        weights=sum(weights.values()),
    )


def host_update_cycles(system: System, gradients: int, weights: int) -> tuple[int, int, int]:
    """Return the cycles of the copies to the host, of its work, and of the copies back, for the fullest IPU's bytes."""
    return (
        laws.SUM_OUT(system.outfeed_cycles(gradients)),
        laws.UPDATE_ON_HOST(Cycles(total, system.host_drain_cycles(gradients), system.host_fill_cycles(weights))),
        laws.WEIGHTS_IN(system.infeed_cycles(weights)),
    )


def _sum_over_links(program: PipelineProgram, system: System, joined: System) -> ReplicaCollective:
    """Return the all-reduces of the IPUs of all hosts, which ``joined`` has one host's behind the other's."""
    sizes, itemsize = _summed_by_ipu(program)
    groups, elements = [], []
    for ipu, size in sizes.items():
        for shard in range(ipu, system.count, system.shards):
            groups.append(range(shard, system.hosts * system.count, system.count))
            elements.append(-(-size // itemsize))
    plans, cost = fastest_all_reduce(joined, groups, elements, itemsize)
    return ReplicaCollective(plans[0].algorithm, cost, sum(accumulators_by_ipu(program).values()))


def weight_gathers(program: PipelineProgram, system: System, side: SideInstructions) -> dict[int, ReplicaCollective]:
    """Return the all-gather before each pass of each stage whose weights are spread over the replicas.

    Each is priced as if it had the links for itself (assumed); of the copies of a stage, the slowest.
    """
    gathers = {}
    for stage in sorted(side.gathered):
        size = program.stages[stage].parameter_bytes
        ways = [all_gathers(system, {ipu: size})[ipu] for ipu in program.shape.ipus_of(stage)]
        gathers[stage] = max(ways, key=lambda way: way.cost.total_cycles)
    return gathers


def update_gathers(program: PipelineProgram, system: System, side: SideInstructions) -> dict[int, ReplicaCollective]:
    """Return the all-gather of each shard's weights and optimizer state before a weight update, all at once.

    After an update of parts the weights are gathered, merged as the sums of gradients are. Unmerged all-gathers follow
    each other, IPU after IPU. The cost includes the all-reduce of a norm for each variable with norms (LAMB).
    """
    if not side.gathered_updates:
        return {}
    sizes = dict.fromkeys(sorted(side.gathered_updates), 0)
    for stage, shard in program.shape.homes:
        if shard in sizes:
            sizes[shard] += program.offload.gathered_bytes(program.stages[stage])
    if not program.offload.sharded_update:
        return all_gathers(system, sizes)
    variables = _updated_by_ipu(program)
    parts = {ipu: [_padded(one.weight, system) for one in own if one.sharded] for ipu, own in variables.items()}
    norms: dict[int, list[tuple[int, int]]] = {ipu: [] for ipu in variables}
    for stage, ipu in program.shape.homes:
        profile = program.stages[stage]
        works = () if isinstance(profile.update, int) else profile.update
        own = zip(works, program.offload.updated(profile), strict=False)
        norms[ipu] += [_NORM for work, one in own if one.sharded and work.vector.reductions]
    batches = [*_batches("all_reduce", norms, program, system), *_batches("all_gather", parts, program, system)]
    algorithm, cost = fastest_in_turn(system, batches)
    return {ipu: ReplicaCollective(algorithm, cost, size) for ipu, size in sizes.items()}


def pass_collectives(
    kinds: tuple[int, ...], program: PipelineProgram, system: System, side: SideInstructions
) -> dict[tuple[int, int], tuple[PassCollective, ...]]:
    """Return the collectives of each (pass, stage) of these kinds, in order.

    A pass of a stage does it in all replicas at once, and in all groups of them; each is priced as if the other
    stages left the links to it (assumed). The fastest algorithm for all groups is taken.
    """
    known: dict[tuple[int, CollectiveCall], PassCollective] = {}

    def priced(shard: int, call: CollectiveCall) -> PassCollective:
        if (shard, call) not in known:
            size = call.elements(system.replicas)
            groups = [[replica * system.shards + shard for replica in group] for group in call.groups(system.replicas)]
            plans, cost = fastest(call.operation, system, groups, [size] * len(groups), call.itemsize)
            known[shard, call] = PassCollective(plans[0].algorithm, cost, size * call.itemsize, call)
        return known[shard, call]

    return {
        (kind, stage): tuple(
            max((priced(ipu, call) for ipu in program.shape.ipus_of(stage)), key=lambda way: way.cost.total_cycles)
            for call in program.collectives(kind, stage)
        )
        for kind, stage in sorted(side.collective)
        if kind in kinds
    }
