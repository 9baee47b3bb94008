"""From a validated Scenario to an Experiment, with every problem that only the values together can show."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from ipusim.hardware.system import System
from ipusim.model.datasets import constant_predictor_loss
from ipusim.model.feed import Feed
from ipusim.model.network import Network
from ipusim.model.optimizers import SGD, Momentum, Optimizer
from ipusim.model.profile import StageProfile
from ipusim.model.stage import LayerStage, build_stages
from ipusim.model.workload import Workload
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import Infeed, Outfeed, PipelineProgram, PlanShape
from ipusim.scenario.experiment import Experiment, HeldOut
from ipusim.scenario.findings import Findings
from ipusim.scenario.limits import check_cycles, check_network
from ipusim.scenario.load import load_source
from ipusim.scenario.model_spec import MomentumSpec
from ipusim.scenario.resolve_data import Data, resolve_data
from ipusim.scenario.resolve_network import is_loss, resolve_network
from ipusim.scenario.resolve_system import resolve_mapping, resolve_plan, resolve_system
from ipusim.scenario.schema import Scenario
from ipusim.scenario.source import Source
from ipusim.scenario.stages import PlannedStage, plan_stages


def load_experiment(path: Path, overrides: Iterable[str] = ()) -> Experiment:
    """Read a scenario file, with overrides such as ``pipeline.repeat_count=10``, into an Experiment.

    Raises ScenarioError with every problem found.
    """
    source, scenario = load_source(path, overrides)
    return resolve(scenario, source)


def resolve(scenario: Scenario, source: Source) -> Experiment:
    """Return what ``scenario`` stands for; ``source`` says where each value is written. Raises ScenarioError."""
    findings = Findings(source)
    planned = plan_stages(scenario, findings)
    training = _is_training(scenario, planned)
    _check_sections(scenario, planned, training, findings)
    data = resolve_data(scenario, source.path.parent, findings)
    system, plan = _place(scenario, planned, training, findings)
    network = _network(scenario, planned, data, plan, findings)
    findings.raise_if_any()
    assert planned is not None  # a None without a finding would be a mistake of this package
    assert system is not None
    assert plan is not None
    stages: tuple[LayerStage, ...] = ()
    feed: Feed | None = None
    if network is not None and data is not None and scenario.data is not None:
        names = [[layer.spec.name for layer in stage.layers] for stage in planned]
        stages = build_stages(network, names, [stage.name for stage in planned])
        feed = Feed(data.train, scenario.pipeline.micro_batch_size, scenario.seed, scenario.data.shuffle)
    name = scenario.name or source.path.stem
    profiles = _timed_profiles(planned, training)
    if stages:
        profiles = _counted_profiles(scenario, stages, feed, training, findings)
        findings.raise_if_any()
    program = _program(scenario, name, profiles, plan, stages, feed)
    check_cycles(scenario, plan, program, system, findings)
    findings.raise_if_any()
    loss = network and network.loss and network.loss.layer
    computes = feed is not None and scenario.numerics != "off"
    held_out = None
    if data is not None and data.held_out is not None and loss is not None:
        held_out = HeldOut(data.held_out, stages, scenario.evaluate.every if scenario.evaluate else None)
    return Experiment(
        name=name,
        description=source.description,
        scenario=scenario,
        system=system,
        program=program,
        workload=_workload(scenario, stages, feed, training) if feed is not None and computes else None,
        steps=scenario.steps,
        held_out=held_out if computes else None,
        constant_loss=constant_predictor_loss(data.train, loss) if computes and data and loss else None,
    )


def _is_training(scenario: Scenario, planned: tuple[PlannedStage, ...] | None) -> bool:
    if scenario.training is not None:
        return scenario.training
    timed = [stage.timed for stage in planned or () if stage.timed]
    return scenario.optimizer is not None or any(stage.backward for stage in timed)


def _check_sections(
    scenario: Scenario, planned: tuple[PlannedStage, ...] | None, training: bool, findings: Findings
) -> None:
    """Refuse sections that make no sense together, or without each other."""
    if scenario.evaluate is not None and (scenario.data is None or scenario.data.hold_out is None):
        text = "expected held-out samples to evaluate on, got none: add hold_out to data, such as hold_out: 0.2"
        findings.add(("evaluate",), text)
    if planned is None:
        return
    if planned[0].timed:
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


def _place(
    scenario: Scenario, planned: tuple[PlannedStage, ...] | None, training: bool, findings: Findings
) -> tuple[System | None, Plan | None]:
    """Return the device and the Plan; each None after noting why."""
    mapping = resolve_mapping(scenario, len(planned), findings) if planned else None
    if mapping is None:
        return resolve_system(scenario, (0,), findings), None
    pipeline = scenario.pipeline
    shape = PlanShape(mapping, pipeline.gradient_accumulation_count, training, pipeline.allow_recompute and training)
    return resolve_system(scenario, mapping, findings), resolve_plan(scenario, shape, findings)


def _network(
    scenario: Scenario,
    planned: tuple[PlannedStage, ...] | None,
    data: Data | None,
    plan: Plan | None,
    findings: Findings,
) -> Network | None:
    """Return the network; None when only time is simulated, or after noting why there is none."""
    if planned is None or data is None or planned[0].timed:
        return None
    layers = [layer for stage in planned for layer in stage.layers]
    network = resolve_network(layers, data.train, findings.source.path.parent, findings)
    if network is not None and plan is not None:
        alive = max(plan.fifo_depths, default=0) + 1
        check_network(network, [layer.path for layer in layers], alive, scenario, findings)
    return network


def _timed_profiles(planned: tuple[PlannedStage, ...], training: bool) -> tuple[StageProfile, ...]:
    return tuple(
        StageProfile(
            name=spec.name,
            forward=spec.forward,
            backward=spec.backward if training else 0,
            update=spec.update if training else 0,
            output_bytes=spec.output_bytes,
            gradient_bytes=spec.gradient_bytes if training else 0,
            parameter_bytes=spec.parameter_bytes,
        )
        for spec in (stage.timed for stage in planned)
        if spec is not None
    )


def _counted_profiles(
    scenario: Scenario, stages: tuple[LayerStage, ...], feed: Feed | None, training: bool, findings: Findings
) -> tuple[StageProfile, ...]:
    """Return what the stages' layers ask of an IPU; where cycles are given, those instead of the work counted."""
    batch, itemsize = scenario.pipeline.micro_batch_size, np.dtype(scenario.precision).itemsize
    optimizer = _optimizer(scenario) if training else None
    profiles = []
    for stage in stages:
        with findings.at(("model",)):
            profiles.append(stage.profile(batch, itemsize, feed.label_bytes if feed else 0, training, optimizer))
    if scenario.pipeline.cycles is None:
        return tuple(profiles)
    return tuple(
        replace(
            profile,
            forward=cycles.forward,
            backward=cycles.backward if training else 0,
            update=cycles.update if training else 0,
        )
        for profile, cycles in zip(profiles, scenario.pipeline.cycles, strict=False)
    )


def _program(
    scenario: Scenario,
    name: str,
    profiles: tuple[StageProfile, ...],
    plan: Plan,
    stages: tuple[LayerStage, ...],
    feed: Feed | None,
) -> PipelineProgram:
    pipeline, infeed, outfeed = scenario.pipeline, scenario.infeed, scenario.outfeed
    in_bytes, out_bytes = infeed.element_bytes, outfeed.element_bytes
    if in_bytes is None:
        in_bytes = feed.element_bytes if feed else 0
    if out_bytes is None:
        itemsize = np.dtype(scenario.precision).itemsize
        out_bytes = stages[-1].result_bytes(pipeline.micro_batch_size, itemsize) if stages else 0
    return PipelineProgram(
        stages=profiles,
        shape=plan.shape,
        schedule=plan.schedule,
        repeat_count=pipeline.repeat_count,
        reduction=pipeline.reduction_method,
        infeed=Infeed(in_bytes, infeed.prefetch_depth),
        outfeed=Outfeed(out_bytes, outfeed.mode, outfeed.buffer_depth),
        micro_batch_size=pipeline.micro_batch_size,
        name=name,
    )


def _optimizer(scenario: Scenario) -> Optimizer | None:
    spec = scenario.optimizer
    if spec is None:
        return None
    if isinstance(spec, MomentumSpec):
        return Momentum(spec.learning_rate, spec.momentum)
    return SGD(spec.learning_rate)


def _workload(scenario: Scenario, stages: tuple[LayerStage, ...], feed: Feed, training: bool) -> Workload:
    return Workload(
        stages=stages,
        feed=feed,
        optimizer=_optimizer(scenario) if training else None,
        reduction=scenario.pipeline.reduction_method,
        dtype=np.dtype(scenario.precision),
        seed=scenario.seed,
    )
