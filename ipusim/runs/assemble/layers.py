"""Build the profiles (costs) and the workload (arithmetic) of stages that consist of layers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ipusim.model.data.datasets import constant_predictor_loss
from ipusim.model.data.feed import Feed
from ipusim.model.layers.network import Network
from ipusim.model.stages.build_stages import Returning, build_stages
from ipusim.model.stages.stage import LayerStage
from ipusim.pipeline.offload import Offload
from ipusim.pipeline.shape import PlanShape
from ipusim.runs.assemble.data import Data, resolve_data
from ipusim.runs.assemble.limits import check_network
from ipusim.runs.assemble.mapping import MAPPING
from ipusim.runs.assemble.network import resolve_network
from ipusim.runs.assemble.program import (
    build_workload,
    check_accumulators,
    counted_profiles,
    infeed_bytes,
    sent_outfeed,
)
from ipusim.runs.assemble.recomputation import kept_layers
from ipusim.runs.assemble.stages import RequestedStage
from ipusim.runs.content import Content, HeldOut
from ipusim.runs.findings import Findings
from ipusim.runs.request.schema import Options
from ipusim.schedules.features import Feature
from ipusim.schedules.schedule import Schedule


@dataclass(frozen=True)
class Layered:
    """The layers that each stage was requested to have, and the data for them.

    Attributes:
        requests: requested stages.
        network: layers of all stages.
        data: training and held-out data.
    """

    requests: tuple[RequestedStage, ...]
    network: Network
    data: Data

    def content(
        self,
        options: Options,
        returns: Returning | None,
        shape: PlanShape,
        training: bool,
        offload: Offload,
        findings: Findings,
    ) -> Content:
        """Return the profiles of the stages and, unless numerics are off, their workload; raises RequestError.

        ``returns`` describes values that wait on an IPU for a later stage; see :func:`returning`.
        """
        network, data = self.network, self.data
        layers = [[layer.spec.name for layer in stage.layers] for stage in self.requests]
        names = [stage.name for stage in self.requests]
        concurrent = [position for position, part in enumerate(shape.parts) if len(part) > 1]
        all_layers = [layer for stage in self.requests for layer in stage.layers]
        checkpoints = kept_layers(options, all_layers) if shape.recompute_inline else ()
        arguments = network, layers, names, concurrent, checkpoints, returns
        stages = findings.settle(findings.attempt(MAPPING, build_stages, *arguments))
        check_accumulators(options, stages, findings)
        if options.pipeline.outfeed_mask is not None:
            stages = (*stages[:-1], replace(stages[-1], gives_predictions=True))
        _check_shared(stages, shape.mapping, offload, findings)
        shuffle = options.data is None or options.data.shuffle
        feed = Feed(data.train, options.pipeline.micro_batch_size, options.seed, shuffle)
        profiles = counted_profiles(options, stages, feed, training, findings)
        findings.raise_if_any()
        outfeed = sent_outfeed(options, stages)
        content = Content(
            profiles, infeed_bytes(options, feed), outfeed, options.pipeline.micro_batch_size, samples=len(data.train)
        )
        if options.numerics == "off":
            return content
        held_out = None
        if data.held_out is not None and network.loss is not None:
            one_stage = build_stages(network, [[name for group in layers for name in group]])
            held_out = HeldOut(data.held_out, one_stage, options.evaluate.every if options.evaluate else None)
        workload = build_workload(options, stages, feed, training)
        return replace(
            content,
            result_bytes=sent_outfeed(options, stages, as_stated=False).element_bytes,
            workload=lambda _: workload,
            held_out=held_out,
            constant_loss=None if network.loss is None else constant_predictor_loss(data.train, network.loss.layer),
        )


def _check_shared(
    stages: tuple[LayerStage, ...], mapping: tuple[int, ...], offload: Offload, findings: Findings
) -> None:
    """Record shared parameters if the sharing stages are on different IPUs, or if replicas shard weights."""
    first_stage: dict[str, int] = {}
    for number, stage in enumerate(stages):
        for name in stage.parameter_names:
            first = first_stage.setdefault(name, number)
            if mapping[first] != mapping[number]:
                text = (
                    f"expected stages {stages[first].name!r} and {stage.name!r}, which both use {name}, on the same "
                    f"IPU, got IPUs {mapping[first]} and {mapping[number]}"
                )
                findings.add(MAPPING, text)
            elif first != number and offload.weights:
                text = f"expected each parameter in one stage, got {name} in several"
                findings.add(("pipeline", "replicated_weight_sharding"), text)


def returning(schedule: Schedule, shape: PlanShape) -> Returning | None:
    """Return the rule for values that wait on an IPU for a later stage.

    None under batch serialization, or if the schedule does not support such values.
    """
    if Feature.RETURNING_VALUES not in schedule.supports or shape.serialization > 1:
        return None
    return Returning(shape.device_of_step[: shape.positions], schedule.multiple(shape) > 1)


def layered(
    options: Options, requests: tuple[RequestedStage, ...] | None, folder: Path, findings: Findings
) -> Layered | None:
    """Return the stages of layers; None for stages with only costs, or after recording problems."""
    data = resolve_data(options, folder, findings)
    if requests is None or data is None or requests[0].costs:
        return None
    layers = [layer for stage in requests for layer in stage.layers]
    network = resolve_network(layers, data.train, folder, findings)
    return None if network is None else Layered(requests, network, data)


def check_layers(layers: Layered, alive: int, options: Options, findings: Findings) -> None:
    """Record weights and activations exceeding this computer's memory, for ``alive`` live micro-batches."""
    paths = [layer.path for stage in layers.requests for layer in stage.layers]
    check_network(layers.network, paths, alive, options, findings)
