"""From a validated Scenario to an Experiment, with every problem that only the values together can show."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from ipusim.hardware.system import System
from ipusim.model.build_stages import Returning, build_stages
from ipusim.model.datasets import constant_predictor_loss
from ipusim.model.feed import Feed
from ipusim.model.network import Network
from ipusim.model.stage import LayerStage
from ipusim.near_names import did_you_mean
from ipusim.pipeline.io_tiles import IoTiles
from ipusim.pipeline.offload import Offload, no_effect_in_inference, no_effect_without_replicas
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram, PlanShape
from ipusim.pipeline.rules import (
    INTERLEAVED,
    THEN_BACKPROPAGATE,
    check_buffer_depth,
    check_outfeed,
    check_outfeed_mask,
    check_prefetch_depth,
    check_recomputation,
    check_serialization,
    check_weight_updates,
    recomputation,
)
from ipusim.pricing.costs import Costs
from ipusim.scenario.experiment import Experiment, HeldOut
from ipusim.scenario.findings import Findings
from ipusim.scenario.layer_spec import AddSpec
from ipusim.scenario.limits import check_network, price_run
from ipusim.scenario.load import load_source, run_name
from ipusim.scenario.problems import KeyPath
from ipusim.scenario.resolve_accumulation import check_accumulators
from ipusim.scenario.resolve_data import Data, resolve_data
from ipusim.scenario.resolve_mapping import MAPPING, DeviceMapping, resolve_mapping
from ipusim.scenario.resolve_network import is_loss, resolve_network
from ipusim.scenario.resolve_options import apply_options, check_options
from ipusim.scenario.resolve_program import (
    build_program,
    build_workload,
    counted_profiles,
    outfeed_bytes,
    timed_profiles,
)
from ipusim.scenario.resolve_system import (
    resolve_io_tiles,
    resolve_offloads,
    resolve_plan,
    resolve_system,
)
from ipusim.scenario.schema import Scenario
from ipusim.scenario.source import Source
from ipusim.scenario.stages import PlannedStage, plan_stages
from ipusim.schedules import registry


def load_experiment(path: Path | str, overrides: Iterable[str] = ()) -> Experiment:
    """Read a scenario file, with overrides such as ``pipeline.repeat_count=10``, into an Experiment.

    Raises ScenarioError with every problem found.
    """
    source, scenario = load_source(path, overrides)
    return resolve(scenario, source)


def resolve(scenario: Scenario, source: Source) -> Experiment:
    """Return what ``scenario`` stands for; ``source`` says where each value is written. Raises ScenarioError."""
    findings = Findings(source)
    scenario = _with_default_schedule(scenario, findings)
    planned = plan_stages(scenario, findings)
    training = _is_training(scenario, planned)
    _check_sections(scenario, planned, training, findings)
    data = resolve_data(scenario, source.path.parent, findings)
    io_tiles = resolve_io_tiles(scenario, findings)
    overlapped = io_tiles is not None and io_tiles.place_ops
    system, plan = _place(scenario, planned, training, overlapped, findings)
    network = _network(scenario, planned, data, plan, findings)
    findings.raise_if_any()
    assert planned is not None  # a None that left no finding would be a mistake of this package
    assert system is not None
    assert plan is not None
    assert io_tiles is not None
    offload = resolve_offloads(scenario, system, training, planned[0].name, findings)
    findings.raise_if_any()
    assert offload is not None
    parts = _Parts(planned, training, system, plan, offload, io_tiles)
    if network is None or data is None:
        return _timing_alone(scenario, parts, findings)
    return _computing(scenario, parts, network, data, findings)


def _with_default_schedule(scenario: Scenario, findings: Findings) -> Scenario:
    """Return the scenario with Graphcore's default under batch serialization, which is Sequential."""
    pipeline = scenario.pipeline
    if pipeline.batch_serialization_iterations == 1 or findings.is_set(("pipeline", "schedule")):
        return scenario
    return scenario.model_copy(update={"pipeline": pipeline.model_copy(update={"schedule": "sequential"})})


@dataclass(frozen=True)
class _Parts:
    """What every Experiment is made of."""

    planned: tuple[PlannedStage, ...]
    training: bool
    system: System
    plan: Plan
    offload: Offload
    io_tiles: IoTiles
    unplaced: str = ""

    def notes(self, scenario: Scenario) -> tuple[str, ...]:
        """Return Graphcore's warnings about what the scenario asks for."""
        pipeline = scenario.pipeline
        offloads = no_effect_in_inference(
            pipeline.offload_weight_update_variables, pipeline.replicated_optimizer_state_sharding
        )
        sharding = no_effect_without_replicas(
            self.offload,
            pipeline.replicated_optimizer_state_sharding and self.training,
            pipeline.replicated_weight_sharding,
            pipeline.offload_weights,
        )
        checkpoints = []
        if pipeline.recomputation_checkpoints and not self.plan.shape.recompute_inline:
            checkpoints.append(
                "recomputation_checkpoints will have no effect since activations are not computed again inside the "
                "backward pass (RecomputeAndBackpropagateInterleaved with allow_recompute)."
            )
        return (
            *checkpoints,
            *(() if self.training else offloads),
            *sharding,
            *([self.unplaced] if self.unplaced else []),
        )

    def experiment(self, scenario: Scenario, source: Source, program: PipelineProgram, costs: Costs) -> Experiment:
        """Return the Experiment of ``program``, which costs that, without arithmetic."""
        return Experiment(
            program.name,
            source.description,
            scenario,
            source,
            self.system,
            program,
            self.plan,
            costs,
            scenario.steps,
            self.notes(scenario),
        )

    def settled(
        self, scenario: Scenario, program: PipelineProgram, findings: Findings
    ) -> tuple[_Parts, PipelineProgram]:
        """Return both as they are when the feeds do not fit the I/O tiles: all tiles compute, nothing is overlapped."""
        program = replace(program, offload=self.offload)
        why = self.io_tiles.why_not_placed(program, self.system.ipu.sram_bytes_per_tile)
        if not self.io_tiles.place_ops or not why:
            return self, program
        shape = replace(self.plan.shape, overlapped_io=False)
        plan = resolve_plan(scenario, shape, findings) or self.plan
        system = self.system.without_io_tiles()
        return replace(self, plan=plan, system=system, unplaced=why), replace(program, shape=plan.shape)


def _timing_alone(scenario: Scenario, parts: _Parts, findings: Findings) -> Experiment:
    """Assemble an Experiment of stages known by their cost alone."""
    name = run_name(scenario, findings.source.path)
    profiles = timed_profiles(parts.planned, parts.training, scenario.infeed.element_bytes)
    program = build_program(scenario, name, profiles, parts.plan.shape, (), None)
    parts, program = parts.settled(scenario, program, findings)
    costs = price_run(scenario, parts.plan, program, parts.system, findings)
    return parts.experiment(scenario, findings.source, program, costs)


def _computing(scenario: Scenario, parts: _Parts, network: Network, data: Data, findings: Findings) -> Experiment:
    """Assemble an Experiment of layers; with numerics off it keeps their cost and leaves the arithmetic out."""
    layers = [[layer.spec.name for layer in stage.layers] for stage in parts.planned]
    names, shape = [stage.name for stage in parts.planned], parts.plan.shape
    places = [place for place, each in enumerate(shape.parts) if len(each) > 1]
    checkpoints = scenario.pipeline.recomputation_checkpoints if shape.recompute_inline else ()
    stages: tuple[LayerStage, ...] = ()
    with findings.at(MAPPING):
        stages = build_stages(network, layers, names, places, checkpoints, _returning(scenario, shape))
    findings.raise_if_any()
    check_accumulators(scenario, stages, findings)
    if scenario.pipeline.outfeed_mask is not None:
        stages = (*stages[:-1], replace(stages[-1], gives_predictions=True))
    shuffle = scenario.data is None or scenario.data.shuffle
    feed = Feed(data.train, scenario.pipeline.micro_batch_size, scenario.seed, shuffle)
    profiles = counted_profiles(scenario, stages, feed, parts.training, findings)
    findings.raise_if_any()
    profiles = apply_options(scenario, profiles, parts.plan.shape, parts.system.ipu)
    name = run_name(scenario, findings.source.path)
    program = build_program(scenario, name, profiles, parts.plan.shape, stages, feed)
    parts, program = parts.settled(scenario, program, findings)
    kept_bytes = 0 if scenario.numerics == "off" else outfeed_bytes(scenario, stages)
    costs = price_run(scenario, parts.plan, program, parts.system, findings, kept_bytes)
    experiment = parts.experiment(scenario, findings.source, program, costs)
    if scenario.numerics == "off":
        return experiment
    held_out = None
    if data.held_out is not None and network.loss is not None:
        whole = build_stages(network, [[name for group in layers for name in group]])  # an evaluation is no pipeline
        held_out = HeldOut(data.held_out, whole, scenario.evaluate.every if scenario.evaluate else None)
    return replace(
        experiment,
        notes=(*experiment.notes, *_few_samples(program, parts.system, len(data.train))),
        workload=build_workload(scenario, stages, feed, parts.training),
        held_out=held_out,
        constant_loss=None if network.loss is None else constant_predictor_loss(data.train, network.loss.layer),
    )


def _few_samples(program: PipelineProgram, system: System, samples: int) -> tuple[str, ...]:
    """Return a warning where one weight update takes samples several times, as the data have fewer."""
    batch = program.micro_batch_size * program.shape.count * system.replicas
    if not program.shape.training or batch <= samples:
        return ()
    return (
        f"Each weight update takes {batch} samples, and the data have {samples} to train on: samples come several "
        "times in one update. Take more samples, or a smaller pipeline.gradient_accumulation_count.",
    )


def _returning(scenario: Scenario, shape: PlanShape) -> Returning | None:
    """Return which values stay on an IPU: under Interleaved, and in loops of batch serialization, none."""
    schedule = scenario.pipeline.schedule.lower()
    if schedule not in ("grouped", "sequential", "sharded") or shape.serialization > 1:
        return None
    return Returning(shape.device_of_step[: shape.positions], schedule == "grouped")


def _is_training(scenario: Scenario, planned: tuple[PlannedStage, ...] | None) -> bool:
    if scenario.training is not None:
        return scenario.training
    timed = [cost for stage in planned or () for cost in stage.costs]
    return scenario.optimizer is not None or any(stage.backward for stage in timed)


def _check_sections(
    scenario: Scenario, planned: tuple[PlannedStage, ...] | None, training: bool, findings: Findings
) -> None:
    """Refuse sections that make no sense together, or without each other."""
    if scenario.evaluate is not None and (scenario.data is None or scenario.data.hold_out is None):
        text = "expected held-out samples to evaluate on, got none: add hold_out to data, such as hold_out: 0.2"
        findings.add(("evaluate",), text)
    for queue in ("infeed", "outfeed"):
        if scenario.use_synthetic_data and findings.is_set((queue, "element_bytes")):
            text = (
                "expected no bytes with use_synthetic_data, under which the feeds move none; leave one of the two out"
            )
            findings.add((queue, "element_bytes"), text)
    with findings.at(("pipeline", "continuous_weight_updates")):
        check_weight_updates(scenario.pipeline.continuous_weight_updates)
    with findings.at(("pipeline", "batch_serialization_iterations")):
        check_serialization(scenario.pipeline.batch_serialization_iterations, scenario.pipeline.reduction_method)
    with findings.at(("infeed", "prefetch_depth")):
        check_prefetch_depth(scenario.infeed.prefetch_depth)
    with findings.at(("outfeed", "buffer_depth")):
        check_buffer_depth(scenario.outfeed.buffer_depth)
    if planned is None:
        return
    _check_outfeed(scenario, planned, training, findings)
    counted = not planned[0].costs and scenario.pipeline.cycles is None
    check_options(scenario, len(planned), counted, findings)
    _check_checkpoints(scenario, planned, counted, findings)
    if planned[0].costs:
        if scenario.numerics == "on":
            text = "expected off with stages known by their cost alone, got on: give layers and data to compute"
            findings.add(("numerics",), text)
        if scenario.data is not None:
            text = (
                "expected no data with stages known by their cost alone, got some: infeed.element_bytes says the bytes"
            )
            findings.add(("data",), text)
        return
    if scenario.data is None:
        text = "expected data, whose samples give the model its input, got nothing: add for example "
        findings.add(("data",), text + "data: {type: synthetic, shape: [28, 28], classes: 10, samples: 1000}")
    last = planned[-1].layers[-1]
    if training and scenario.optimizer is None:
        findings.add(("training",), "expected an optimizer to train with, got none: add one, or set training to false")
    if training and not is_loss(last):
        text = f"expected a loss as the last layer to train, got {last.spec.name!r}: add one, or leave optimizer out"
        findings.add(last.path, text)
    if scenario.evaluate is not None and not training and not is_loss(last):
        text = f"expected a loss as the model's last layer to evaluate, got {last.spec.name!r}"
        findings.add(("evaluate",), text)


def _check_outfeed(scenario: Scenario, planned: tuple[PlannedStage, ...], training: bool, findings: Findings) -> None:
    """Refuse what the outfeed cannot send, at the first of the keys that say it."""
    pipeline = scenario.pipeline
    keys = "outfeed_mask", "outfeed_loss", "accumulate_outfeed"
    place = next((key for key in keys if getattr(pipeline, key)), keys[0])
    with findings.at(("pipeline", place)):
        check_outfeed(
            training=training,
            mask=pipeline.outfeed_mask is not None,
            loss=pipeline.outfeed_loss,
            accumulate=pipeline.accumulate_outfeed,
            mode=scenario.outfeed.mode,
        )
        if pipeline.outfeed_mask is not None:
            check_outfeed_mask(pipeline.outfeed_mask, 1 if planned[0].costs else 2)
    if pipeline.accumulate_outfeed_dtype is not None and not pipeline.accumulate_outfeed:
        text = "expected accumulate_outfeed: true beside the type of the sum, got the type alone"
        findings.add(("pipeline", "accumulate_outfeed_dtype"), text)


def _check_checkpoints(
    scenario: Scenario, planned: tuple[PlannedStage, ...], counted: bool, findings: Findings
) -> None:
    """Refuse checkpoints that are no layers, or in stages whose cycles are given."""
    key: KeyPath = ("pipeline", "recomputation_checkpoints")
    if scenario.pipeline.recomputation_checkpoints and not counted:
        findings.add(key, "expected no checkpoints in stages whose cycles are given, got some: leave them out")
        return
    layers = [layer for stage in planned for layer in stage.layers]
    if scenario.pipeline.recomputation_checkpoints and any(isinstance(layer.spec, AddSpec) for layer in layers):
        findings.add(key, "expected no checkpoints in a model with skip connections, got some: leave them out")
    names = [layer.spec.name for layer in layers if not is_loss(layer)]
    for index, name in enumerate(scenario.pipeline.recomputation_checkpoints):
        if name not in names:
            near = did_you_mean(name, names)
            text = f"expected the name of a layer, got {name!r}{near} (the layers are {', '.join(names)})"
            findings.add((*key, index), text)


def _place(
    scenario: Scenario,
    planned: tuple[PlannedStage, ...] | None,
    training: bool,
    overlapped_io: bool,
    findings: Findings,
) -> tuple[System | None, Plan | None]:
    """Return the device and the Plan; each None after noting why."""
    mapping = resolve_mapping(scenario, planned, findings) if planned else None
    if mapping is None:
        return resolve_system(scenario, DeviceMapping((0,)), findings), None
    pipeline = scenario.pipeline
    schedule = registry.find(pipeline.schedule)
    mode = None
    with findings.at(("pipeline", "recomputation_mode")):
        mode = recomputation(pipeline.recomputation_mode, schedule.recomputation_modes, schedule.name)
    if mode is None:
        return resolve_system(scenario, mapping, findings), None
    again = mode if pipeline.allow_recompute and training else None
    with findings.at(("pipeline", "allow_recompute")):
        check_recomputation(again is not None, schedule.recomputation_modes, schedule.name)
    shape = None
    with findings.at(MAPPING):
        shape = PlanShape(
            mapping.ipus,
            pipeline.gradient_accumulation_count * pipeline.batch_serialization_iterations,
            training,
            again == THEN_BACKPROPAGATE,
            again == INTERLEAVED,
            overlapped_io,
            mapping.sizes,
            pipeline.batch_serialization_iterations,
        )
    system = resolve_system(scenario, mapping, findings)
    return system, None if shape is None else resolve_plan(scenario, shape, findings)


def _network(
    scenario: Scenario,
    planned: tuple[PlannedStage, ...] | None,
    data: Data | None,
    plan: Plan | None,
    findings: Findings,
) -> Network | None:
    """Return the network; None when only time is simulated, or after noting why there is none."""
    if planned is None or data is None or planned[0].costs:
        return None
    layers = [layer for stage in planned for layer in stage.layers]
    network = resolve_network(layers, data.train, findings.source.path.parent, findings)
    if network is not None and plan is not None:
        alive = max(plan.fifo_depths, default=0) + 1
        check_network(network, [layer.path for layer in layers], alive, scenario, findings)
    return network
