"""Resolve a request's system section, device mapping and schedule to a System and a Plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

from ipusim.base.errors import CountError, PlanError, ProgramError, UnsupportedProgramError
from ipusim.base.units import format_numbers
from ipusim.hardware.build import build_system, join_hosts
from ipusim.hardware.disturbances import Disturbance, problems_of
from ipusim.hardware.machines import MACHINES
from ipusim.hardware.rate import Rate
from ipusim.hardware.rates import RATES, Rates
from ipusim.hardware.system import ON_POPART, System
from ipusim.pipeline.io_tiles import IoTiles
from ipusim.pipeline.offload import (
    Offload,
    check_accumulation_buffers,
    check_activations,
    check_weight_sharding,
    check_weight_update_variables,
    resolve_offload,
    resolve_sharding,
)
from ipusim.pipeline.plan import Plan, Sync
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.limits import laid_out_shape, refuse_passes
from ipusim.runs.assemble.mapping import MAPPING, DeviceMapping
from ipusim.runs.assemble.moved_activations import resolve_moved, with_period_of_moves
from ipusim.runs.assemble.plans import checked_sync, nearest_counts, plan_of
from ipusim.runs.assemble.short_counts import short_counts
from ipusim.runs.findings import Findings
from ipusim.runs.problems import KeyPath, one_of
from ipusim.runs.request.schema import Options
from ipusim.runs.request.system_spec import StreamingMemorySpec, SystemSpec
from ipusim.schedules.features import Feature
from ipusim.schedules.repeating import with_period
from ipusim.schedules.schedule import Schedule

#: Problems: path of an option, and text.
_Problems = Iterator[tuple[KeyPath, str]]
_NANOSECONDS_PER_SECOND: Final = 10**9
#: Options of a weight update on IPUs.
_UPDATE_OPTIONS: Final = (
    "offload_weight_update_variables",
    "replicated_optimizer_state_sharding",
    "replicated_weight_sharding",
)


def resolve_system(
    options: Options, pipelined: bool, devices: DeviceMapping, rates: Rates, findings: Findings
) -> System | None:
    """Return the device of the program, pipelined or not; None after recording problems."""
    spec, mapping = options.system, devices.ipus
    ipus = spec.auto_select_ipus
    if ipus is None and spec.select_ipus is None:
        ipus = 1 << max(mapping).bit_length()
    path: KeyPath = ("system", "select_ipus" if spec.select_ipus is not None else "auto_select_ipus")
    if not findings.is_set(path):
        path = MAPPING if findings.is_set(MAPPING) else ("system", "name")

    def build(stages: tuple[int, ...]) -> System:
        system = build_system(
            spec.name,
            mapping=stages,
            ipus=ipus,
            select=spec.select_ipus,
            selection_order=spec.selection_order,
            devices=devices.devices,
            pipelined=pipelined,
            clock_hz=spec.clock,
            overhead_ns=None if spec.overhead is None else spec.overhead * _NANOSECONDS_PER_SECOND,
            rates=rates,
            host_rates=_host_rates(options),
            remote_buffers=spec.enable_remote_buffers,
            streaming=_streaming(spec.streaming_memory),
            io_tiles=spec.io_tiles.num_io_tiles,
        )
        host = spec.host
        system = replace(system, framework=host.framework, hosts=host.count)
        return replace(system, optimizer_update_interval=host.updates_optimizer, optimizer_values=host.optimizer_values)

    for check in (_cost_problems, _streaming_problems, _overhead_problems):
        problems = list(check(spec, rates, findings))
        for key, text in problems:
            findings.add(key, text)
        if problems:
            return None
    device = findings.attempt(path, build, (0,))
    if device is None:
        return None
    count = device.count
    stages_outside = [stage for stage, ipu in enumerate(mapping) if ipu >= count]
    if not stages_outside:
        system = findings.attempt(("system",), build, mapping)
        return None if system is None else _join(spec, system, mapping, findings)
    if findings.is_set(MAPPING):
        for stage in stages_outside:
            text = f"expected an IPU {format_numbers(count)} of the device's {count}, got {mapping[stage]}"
            findings.add((*MAPPING, *devices.path_of(stage)), f"{text}; use a larger device, or another IPU")
    else:
        device_size = 1 << max(mapping).bit_length()
        text = f"expected a device of {device_size} IPUs for {len(mapping)} stages, got a device of {count}"
        findings.add(path, f"{text}; give device_mapping to run several stages on one IPU")
    return None


def with_disturbances(options: Options, system: System, findings: Findings) -> System | None:
    """Return a system with the disturbances of the options; None after recording problems."""
    disturbances: tuple[Disturbance, ...] = tuple(spec.build() for spec in options.disturbances)
    problems = list(problems_of(disturbances, system))
    for number, key, text in problems:
        findings.add(("disturbances", number, key), text)
    return None if problems else system.disturbed(disturbances) if disturbances else system


def resolve_io_tiles(options: Options, findings: Findings) -> IoTiles | None:
    """Return the I/O tiles of a request; None after recording a problem."""
    spec = options.system.io_tiles
    share = Fraction(str(spec.available_memory_proportion))
    path = ("system", "io_tiles", "place_ops_on_io_tiles")
    return findings.attempt(path, IoTiles, spec.num_io_tiles, spec.place_ops_on_io_tiles, share)


def resolve_offloads(
    options: Options, system: System, training: bool, names: Sequence[str], findings: Findings
) -> Offload | None:
    """Return the offloads and the sharding over replicas; None after recording a problem.

    ``names`` are the names of the stages.
    """
    pipeline, problem_count = options.pipeline, len(findings)
    updates_on_host = pipeline.variables_on_host and training
    if updates_on_host:
        text = "expected false or absent with variables_on_host, because IPUs then have no part in the weight update"
        for option in _UPDATE_OPTIONS:
            if getattr(pipeline, option):
                findings.add(("pipeline", option), f"{text}, got true")
    has_memory, serialized = system.streaming is not None, pipeline.batch_serialization_iterations > 1

    def check(option: str, rule: Callable[..., None], *values: bool | None, **flags: Any) -> None:
        findings.attempt(("pipeline", option), rule, *values, remote_memory=has_memory, **flags)

    moves = resolve_moved(pipeline, system, names, findings)
    activations = pipeline.offload_activations
    activations = activations if isinstance(activations, bool) else None
    check("offload_activations", check_activations, activations, serialized=serialized)
    # Inference offloads no tensors of the weight update; related options only give warnings.
    offloads_state = pipeline.offload_weight_update_variables if training and not updates_on_host else False
    offloads_sums = pipeline.offload_gradient_accumulation_buffers if training else False
    shards_state = pipeline.replicated_optimizer_state_sharding and training
    shards_weights = False if updates_on_host else pipeline.replicated_weight_sharding
    check("offload_weight_update_variables", check_weight_update_variables, offloads_state)
    check("offload_gradient_accumulation_buffers", check_accumulation_buffers, offloads_sums)
    check("replicated_weight_sharding", check_weight_sharding, shards_weights, pipeline.offload_weights, stage=names[0])
    if len(findings) > problem_count:
        return None
    offload = resolve_offload(
        offloads_state,
        offloads_sums,
        activations,
        remote_memory=has_memory,
        serialized=serialized,
        minimum_bytes=options.system.minimum_remote_tensor_size,
        popart=system.framework in ON_POPART,
    )
    offload = replace(
        offload,
        minimum_elements=options.system.minimum_sharded_elements,
        variables_on_host=updates_on_host,
        moved=moves if training else None,
    )
    return findings.attempt(
        ("pipeline", "replicated_optimizer_state_sharding"),
        resolve_sharding,
        offload,
        shards_state,
        shards_weights,
        pipeline.offload_weights,
        replicas=system.replicas,
        remote_memory=has_memory,
        serialized=serialized,
    )


def _cost_problems(spec: SystemSpec, rates: Rates, findings: Findings) -> _Problems:
    """Yield a problem for each cost of copies, or of the host, that a request sets on the free system."""
    costs = [("system", "host", name) for name, _ in spec.host if name not in ("count", "sum_over")]
    cost_paths: list[KeyPath] = [path for path in (("system", "overhead"), *costs) if findings.is_set(path)]
    cost_paths += [("rates", rate.name) for rate in _changed_rates(rates, findings) if rate.part != "computation"]
    if spec.name == "free":
        for path in cost_paths:
            yield path, "expected no cost on the free system, where copies and the host are free, got a cost"


def _overhead_problems(_: SystemSpec, rates: Rates, findings: Findings) -> _Problems:
    """Yield a problem for each fixed part of a copy's cost, if the request also sets ``system.overhead``.

    ``system.overhead`` is the total of these parts.
    """
    parts = ("pre_copy_cycles", "pair_exchange_ns", "beyond_pair_exchange_ns", "post_copy_cycles")
    for rate in _changed_rates(rates, findings):
        if findings.is_set(("system", "overhead")) and rate.attribute in parts:
            text = "expected this rate or system.overhead, the total of all fixed parts of a copy, got both"
            yield ("rates", rate.name), text


def _changed_rates(rates: Rates, findings: Findings) -> list[Rate]:
    """Return the rates that a request sets, or that its file of rates changes."""
    if not rates.file and not findings.is_set(("rates",)):
        return []
    return [
        rate
        for rate in RATES
        if findings.is_set(("rates", rate.name)) or (rates.file and rate in rates.changed_rates())
    ]


def _streaming_problems(spec: SystemSpec, _: Rates, findings: Findings) -> _Problems:
    """Yield a problem for remote buffers without Streaming Memory, or for its figures without remote buffers."""
    if spec.enable_remote_buffers and MACHINES[spec.name].streaming is None:
        machines = one_of([name for name, machine in MACHINES.items() if machine.streaming])
        text = f"expected a machine with Streaming Memory, {machines}, got {spec.name}"
        yield ("system", "enable_remote_buffers"), text
    if findings.is_set(("system", "streaming_memory")) and not spec.enable_remote_buffers:
        text = "expected enable_remote_buffers: true with figures of the Streaming Memory, got only the figures"
        yield ("system", "streaming_memory"), text


def _streaming(spec: StreamingMemorySpec) -> dict[str, Fraction | int]:
    figures = {"bytes_per_s": spec.bandwidth, "ipu_bytes_per_s": spec.ipu_bandwidth, "capacity_bytes": spec.capacity}
    return {name: value for name, value in figures.items() if value is not None}


def _host_rates(options: Options) -> Mapping[str, Fraction]:
    other_keys = ("framework", "updates_optimizer", "optimizer_values", "count", "sum_over")
    rates = {name: rate for name, rate in options.system.host if name not in other_keys and rate is not None}
    return {f"{name}_bytes_per_s": rate for name, rate in rates.items()}


def _join(spec: SystemSpec, system: System, mapping: tuple[int, ...], findings: Findings) -> System | None:
    """Return the device joined over all hosts, if hosts sum over links; None after recording problems."""
    if spec.host.sum_over != "links" or spec.host.count == 1:
        return system
    path: KeyPath = ("system", "host", "count")
    device = findings.attempt(path, join_hosts, system, spec.name, spec.host.count, mapping)
    return None if device is None else replace(system, joined=device)


def _refused_option(schedule: Schedule, shape: PlanShape, sync: Sync | None, findings: Findings) -> KeyPath:
    """Return the option that the schedule, or the requested sync mode, does not support."""

    def is_refused(mode: Sync | None) -> bool:
        try:
            checked_sync(schedule, shape, mode)
        except UnsupportedProgramError:
            return True
        return False

    if sync is not None and is_refused(sync) and not is_refused(None):
        return "pipeline", "sync"
    if 0 < shape.group_size < len(set(shape.mapping)):
        return "pipeline", "micro_batch_group_size"
    serialized = shape.serialization > 1 and Feature.BATCH_SERIALIZATION not in schedule.supports
    refuses_inference = not shape.training and Feature.INFERENCE not in schedule.supports
    by_schedule = shape.overlapped_io or serialized or refuses_inference
    return (None if by_schedule else _placing_option(findings)) or ("pipeline", "schedule")


def _placing_option(findings: Findings) -> KeyPath | None:
    """Return the option that places the stages. If the schedule places them, return None."""
    options: tuple[KeyPath, ...] = (MAPPING, ("pipeline", "virtual_stages"))
    return next(filter(findings.is_set, options), None)


def resolve_plan(
    options: Options, schedule: Schedule, shape: PlanShape, findings: Findings, *, shorter: bool = False
) -> tuple[Schedule, Plan] | None:
    """Return the schedule's Plan for ``shape``, or for fewer micro-batches if too large.

    With ``shorter``, the Plan is for a short run that may stand for the whole run, and the schedule has the period
    found for its Order. None after recording problems.
    """
    sync = Sync(options.pipeline.sync) if options.pipeline.sync else None
    several_ipus = Feature.SEVERAL_IPUS in schedule.supports
    if not schedule.pipelined and several_ipus and shape.stages < 2:
        text = "expected at least two stages to shard, got one stage: name layers in splits, or use the schedule single"
        findings.add(("pipeline", "schedule"), text)
        return None
    plan_shape: PlanShape | None = shape
    try:
        if shorter and laid_out_shape(shape, schedule.multiple) == shape:
            checked_sync(schedule, shape, sync)
            schedule = with_period(schedule, shape)
        schedule = with_period_of_moves(options.pipeline, schedule)
        if shorter:
            count = next(short_counts(schedule, shape), shape.micro_batches)
            shape = replace(shape, micro_batches=count)
        plan_shape = laid_out_shape(shape, schedule.multiple)
        if plan_shape is not None:
            return schedule, plan_of(schedule, plan_shape, sync)
        refuse_passes(options, shape, findings)
    except CountError as error:
        if plan_shape != shape:
            refuse_passes(options, shape, findings)
            return None
        text = str(error)
        if schedule.written is None:
            with findings.collect(("pipeline", "schedule")):
                if counts := nearest_counts(schedule, shape, sync):
                    text += f" The nearest counts of {schedule.name}: {one_of(list(map(str, counts)))}."
        findings.add(("pipeline", "gradient_accumulation_count"), text, error)
    except UnsupportedProgramError as error:
        findings.add(_refused_option(schedule, shape, sync, findings), str(error), error)
    except ProgramError as error:
        remedy = " Name layers in splits, or use the schedule single." if shape.stages < 2 else ""
        path = ("pipeline", "schedule") if several_ipus else _placing_option(findings) or MAPPING
        findings.add(path, str(error) + remedy, error)
    except PlanError as error:  # from a user's schedule
        findings.add(("pipeline", "schedule"), str(error), error)
    return None
