"""What replicas do together: their gradients are summed up, and what each stores a part of is put together."""

from __future__ import annotations

from ipusim.hardware.collectives.choose import fastest, fastest_all_reduce
from ipusim.hardware.system import System
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing.costs import Gather, GradientSum


def gradient_sum(plan: Plan, program: PipelineProgram, system: System) -> GradientSum | None:
    """Return how the replicas of ``system`` sum up their gradients; None where there is nothing to sum up.

    Each IPU's accumulators are one buffer. The fastest algorithm for all of them at once is taken.
    """
    if system.replicas == 1 or not plan.shape.training:
        return None
    held = dict.fromkeys(plan.ipus, 0)
    itemsize = min((profile.accumulator_itemsize for profile in program.stages if profile.accumulator_bytes), default=1)
    for ipu, profile in zip(plan.shape.mapping, program.stages, strict=True):
        held[ipu] += profile.accumulator_bytes
    held = {ipu: size for ipu, size in held.items() if size}
    if not held:
        return None
    groups = [range(ipu, system.count, system.shards) for ipu in held]
    plans, cost = fastest_all_reduce(system, groups, [-(-size // itemsize) for size in held.values()], itemsize)
    return GradientSum(plans[0].algorithm, cost, sum(held.values()))


def weight_gathers(program: PipelineProgram, system: System) -> dict[int, Gather]:
    """Return the all-gather before each pass of each stage whose weights are spread over the replicas.

    Each is priced as if it had the links for itself (assumed).
    """
    if not program.offload.weights:
        return {}
    found = {}
    for stage, profile in enumerate(program.stages):
        if profile.parameter_bytes:
            place = program.shape.mapping[stage]
            group = range(place, system.count, system.shards)
            plans, cost = fastest("all_gather", system, [group], [profile.parameter_bytes], 1)
            found[stage] = Gather(plans[0].algorithm, cost, profile.parameter_bytes)
    return found


def update_gathers(plan: Plan, program: PipelineProgram, system: System) -> dict[int, Gather]:
    """Return the all-gather of each place's weights and optimizer state before a weight update, all at once."""
    offload = program.offload
    if not plan.shape.training or offload.replicas == 1:
        return {}
    held = dict.fromkeys(plan.ipus, 0)
    for place, profile in zip(plan.shape.mapping, program.stages, strict=True):
        held[place] += offload.gathered_bytes(profile)
    held = {place: size for place, size in held.items() if size}
    if not held:
        return {}
    groups = [range(place, system.count, system.shards) for place in held]
    plans, cost = fastest("all_gather", system, groups, list(held.values()), 1)
    return {place: Gather(plans[0].algorithm, cost, size) for place, size in held.items()}
