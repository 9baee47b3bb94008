"""From traced stages and a configuration to what the machine runs: a program, its Plan and its System."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ipusim.analysis.fit import Fit, fit
from ipusim.errors import ProgramError, UnsupportedProgramError
from ipusim.hardware.system import System
from ipusim.ipu import checks
from ipusim.ipu.arguments import BACKWARD_OPTIONS, FORWARD_OPTIONS, UPDATE_OPTIONS, Arguments
from ipusim.ipu.config import IPUConfig, default_system
from ipusim.ipu.memory import check_memory
from ipusim.ipu.optimizers import Variable
from ipusim.ipu.traced import Traced
from ipusim.model.layers.layer import Array
from ipusim.model.profile import StageProfile
from ipusim.model.stages.function_profile import Summed, profile
from ipusim.model.stages.stage_options import with_options
from ipusim.pipeline.check import check
from ipusim.pipeline.footprint import footprint
from ipusim.pipeline.offload import Offload, no_effect_without_replicas, resolve_offload, resolve_sharding
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import Infeed, Outfeed, PipelineProgram, PlanShape
from ipusim.pipeline.rules import INTERLEAVED, THEN_BACKPROPAGATE, recomputation
from ipusim.pricing.costs import Costs
from ipusim.pricing.price import price
from ipusim.schedules.registry import find


@dataclass(frozen=True, eq=False)
class Built:
    """What runs, where, what it costs and what its IPUs hold; ``notes`` are warnings."""

    program: PipelineProgram
    plan: Plan
    system: System
    costs: Costs
    memory: Fit
    notes: tuple[str, ...]


def build(arguments: Arguments, traced: Traced, config: IPUConfig | None) -> Built:
    """Lay the pipeline out.

    Raises UnsupportedProgramError and CountError as the schedule does, DeviceError for a device
    that there is not, RemoteMemoryError for offloads without Streaming Memory, and OutOfMemoryError for
    a pipeline that does not fit its IPUs.
    """
    chosen = IPUConfig() if config is None else config
    chosen.check()
    tiles = chosen.wanted_io_tiles()
    schedule = find(arguments.schedule.value)
    mode = recomputation(arguments.recomputation_mode.value, schedule.recomputation_modes, schedule.name)
    again = mode if chosen.allow_recompute and arguments.training else None
    sizes = tuple(map(len, arguments.stages))
    shape = PlanShape(
        mapping=arguments.mapping,
        micro_batches=arguments.count * arguments.batch_serialization_iterations,
        training=arguments.training,
        recompute=again == THEN_BACKPROPAGATE,
        recompute_inline=again == INTERLEAVED,
        overlapped_io=tiles.place_ops,
        sizes=sizes if max(sizes) > 1 else (),
        serialization=arguments.batch_serialization_iterations,
    )
    plan = schedule.plan(shape)
    system = default_system(config, arguments.mapping, schedule.pipelined)
    if arguments.training and system.replicas > 1 and traced.optimizer and not traced.optimizer.optimizer.cross_replica:
        raise UnsupportedProgramError(
            f"optimizer_function: replicas that learn by themselves are not simulated, and this device has "
            f"{system.replicas}: expected a CrossReplicaOptimizer around the optimizer, or a device of "
            f"{system.shards} IPUs"
        )
    outfeed = _outfeed(arguments, traced)
    first = traced.stages[0].inputs[len(arguments.inputs) :]
    program = PipelineProgram(
        stages=_with_options(arguments, _profiles(arguments, traced, outfeed), shape, chosen, system),
        shape=shape,
        schedule=schedule.name,
        repeat_count=arguments.repeat_count,
        reduction=arguments.reduction_method.reduction,
        infeed=Infeed(_bytes(first), arguments.infeed.prefetch_depth) if arguments.infeed else Infeed(),
        outfeed=outfeed,
        micro_batch_size=_samples(first or traced.stages[0].inputs),
        name=arguments.name,
        offload=_offload(arguments, chosen, system),
    )
    notes = (*arguments.notes, *_without_effect(arguments, program.offload))
    _refuse_shared_variables_in_parts(program.offload, traced)
    if tiles.place_ops and (why := tiles.why_not_placed(program, system.ipu.sram_bytes_per_tile)):
        program = replace(program, shape=replace(shape, overlapped_io=False))
        plan, system, notes = schedule.plan(program.shape), system.without_io_tiles(), (*notes, why)
    check(plan)
    memory = fit(plan, footprint(plan, program), None if system.free else system.ipu.sram_bytes)
    check_memory(memory, system)
    return Built(program, plan, system, price(plan, program, system), memory, notes)


def accumulator_dtype(arguments: Arguments, name: str, variable: Array) -> np.dtype[Any]:
    """Return the dtype of a variable's gradient accumulator: as asked for, else the variable's own.

    Raises ProgramError for a function that fails, and ProgramTypeError for one that returns no dtype.
    """
    asked: Any = arguments.gradient_accumulation_dtype
    if asked is None:
        return variable.dtype
    if callable(asked):
        try:
            asked = asked(Variable(name, variable, {}))
        except Exception as error:
            raise ProgramError(
                f"gradient_accumulation_dtype: expected a dtype of the function for variable {name!r}, got "
                f"{type(error).__name__}: {error}"
            ) from error
    return checks.dtype("gradient_accumulation_dtype", asked)


def _profiles(arguments: Arguments, traced: Traced, outfeed: Outfeed) -> tuple[StageProfile, ...]:
    last = len(traced.stages) - 1

    def accumulator(name: str, variable: Array) -> np.dtype[Any]:
        return accumulator_dtype(arguments, name, variable)

    return tuple(
        profile(
            each.stage,
            each.inputs,
            each.outputs,
            is_last=number == last,
            optimizer=traced.optimizer,
            owned=each.owned,
            accumulator=accumulator,
            summed=_summed(outfeed, each.outputs) if number == last and outfeed.accumulate else None,
        )
        for number, each in enumerate(traced.stages)
    )


def _outfeed(arguments: Arguments, traced: Traced) -> Outfeed:
    """Return which of the last stage's results are sent, and how."""
    outputs = traced.stages[-1].outputs
    names = ("loss",) if arguments.outfeed_loss else tuple(f"output {place}" for place in range(len(outputs)))
    if arguments.outfeed is None:
        return Outfeed(names=names, mask=(True,) * len(names))
    dtype = arguments.accumulate_outfeed_dtype if arguments.accumulate_outfeed else None
    found = Outfeed(
        mode=arguments.outfeed.mode,
        buffer_depth=arguments.outfeed.buffer_depth,
        accumulate=arguments.accumulate_outfeed,
        names=names,
        mask=arguments.outfeed_mask or (),
        accumulate_dtype="" if dtype is None else np.dtype(dtype).name,
    )
    for place in found.kept:
        if not np.can_cast(outputs[place].dtype, sent_dtype(found, outputs[place]), "same_kind"):
            checks.wrong_value("accumulate_outfeed_dtype", f"one that {outputs[place].dtype} can be added to", dtype)
    widths = [outputs[place].size * sent_dtype(found, outputs[place]).itemsize for place in found.kept]
    return replace(found, element_bytes=sum(widths))


def sent_dtype(outfeed: Outfeed, output: Array) -> np.dtype[Any]:
    """Return the dtype in which an output is sent."""
    return np.dtype(outfeed.accumulate_dtype or output.dtype)


def _summed(outfeed: Outfeed, outputs: tuple[Array, ...]) -> Summed:
    kept = [outputs[place] for place in outfeed.kept]
    width = max((sent_dtype(outfeed, output).itemsize for output in kept), default=1)
    return Summed(sum(output.size for output in kept), width)


def _offload(arguments: Arguments, config: IPUConfig, system: System) -> Offload:
    there, serialized = system.streaming is not None, arguments.batch_serialization_iterations > 1
    training = arguments.training
    found = resolve_offload(
        arguments.offload_weight_update_variables if training else False,
        arguments.offload_gradient_accumulation_buffers if training else False,
        arguments.offload_activations,
        remote_memory=there,
        serialized=serialized,
        minimum_bytes=config.optimizations.minimum_remote_tensor_size,
    )
    return resolve_sharding(
        found,
        arguments.replicated_optimizer_state_sharding and training,
        arguments.replicated_weight_sharding,
        arguments.offload_weights,
        replicas=system.replicas,
        remote_memory=there,
        serialized=serialized,
        stage=f"{arguments.name}_stage_0",
    )


def _without_effect(arguments: Arguments, offload: Offload) -> tuple[str, ...]:
    return no_effect_without_replicas(
        offload,
        arguments.replicated_optimizer_state_sharding and arguments.training,
        arguments.replicated_weight_sharding,
        arguments.offload_weights,
    )


def _refuse_shared_variables_in_parts(offload: Offload, traced: Traced) -> None:
    """Refuse a variable of several stages whose parts replicas store; raises UnsupportedProgramError."""
    for each in traced.stages:
        shared = [name for name in each.stage.variables if name not in each.owned]
        if offload.weights and shared:
            raise UnsupportedProgramError(
                f"replicated_weight_sharding: expected each variable in one stage, got {shared[0]!r} in several"
            )


def _with_options(
    arguments: Arguments, profiles: tuple[StageProfile, ...], shape: PlanShape, config: IPUConfig, system: System
) -> tuple[StageProfile, ...]:
    """Return ``profiles`` with their operations in the parts that options ask for."""
    general = config.general_options()
    forward = [each.simulated(FORWARD_OPTIONS).over(general) for each in arguments.forward_options]
    backward = [each.simulated(BACKWARD_OPTIONS).over(general) for each in arguments.backward_options]
    update = arguments.update_options.simulated(UPDATE_OPTIONS).over(general)
    return tuple(
        with_options(profile, forward[place], backward[place], update, system.ipu)
        for profile, place in zip(profiles, shape.position_of, strict=True)
    )


def _samples(arrays: tuple[Array, ...]) -> int:
    """Return the samples of a micro-batch: by convention the length of the first array's first axis."""
    return arrays[0].shape[0] if arrays and arrays[0].ndim and arrays[0].shape[0] else 1


def _bytes(arrays: tuple[Array, ...]) -> int:
    return sum(array.nbytes for array in arrays)
