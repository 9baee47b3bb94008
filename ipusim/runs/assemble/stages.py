"""Divide a model into stages, given as splits, lists of layers, functions, or only costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ipusim.base.near_names import did_you_mean, list_names
from ipusim.runs.assemble.model_layers import RequestedLayer, model_layers
from ipusim.runs.findings import Findings
from ipusim.runs.problems import KeyPath
from ipusim.runs.request.layer_spec import PythonSpec
from ipusim.runs.request.model_spec import NamedStageSpec, TimedStageSpec
from ipusim.runs.request.request import Functions
from ipusim.runs.request.schema import Options


@dataclass(frozen=True)
class RequestedStage:
    """Requested stage: layers, or costs without layers.

    Attributes:
        name: name of the stage.
        layers: layers of the stage; empty for a stage known only by its cost.
        timed_spec: cost of a stage known only by its cost; None for other stages.
        concurrent: costs of stages that run concurrently.
        functions: number of the stage's concurrent functions; 0 for a stage of layers or costs.
    """

    name: str
    layers: tuple[RequestedLayer, ...] = ()
    timed_spec: TimedStageSpec | None = None
    concurrent: tuple[TimedStageSpec, ...] = ()
    functions: int = 0

    @property
    def costs(self) -> tuple[TimedStageSpec, ...]:
        """Cost of the stage, or costs of all concurrent stages; empty for layers."""
        return (self.timed_spec,) if self.timed_spec else self.concurrent

    @property
    def describes_memory(self) -> bool:
        """Whether the stage states its memory; stages of layers always do."""
        return not self.costs or any(
            cost.parameter_bytes or cost.stash_bytes or cost.state_bytes for cost in self.costs
        )


def function_stages(functions: Functions) -> tuple[RequestedStage, ...]:
    """Return the stages of a request for Python functions."""
    return tuple(
        RequestedStage(name, functions=parts) for name, parts in zip(functions.names, functions.parts, strict=True)
    )


def requested_stages(options: Options, findings: Findings) -> tuple[RequestedStage, ...] | None:
    """Return the stages in order; None if a problem was recorded."""
    problem_count = len(findings)
    layers = model_layers(options, findings)
    if len(findings) > problem_count and not layers:
        return None
    pipeline = options.pipeline
    if isinstance(pipeline.stages, str):  # an invalid file, recorded before
        return None
    if pipeline.stages is None:
        if options.model is None:
            findings.add(("pipeline", "stages"), "expected a model, or stages with costs, got neither")
        stages = _by_splits(layers, pipeline.splits or (), findings)
    elif pipeline.splits is not None:
        findings.add(("pipeline", "splits"), "expected splits or stages, got both: leave one out")
        stages = []
    else:
        stages = list(_by_lists(options, layers, findings))
        _check_kinds(stages, findings)
        _check_labels(stages, findings)
    _check_names(stages, findings)
    if pipeline.cycles is not None and len(findings) == problem_count and stages[0].costs:
        text = "expected no cycles with stages that have cycles, got both: leave this key out"
        findings.add(("pipeline", "cycles"), text)
    return None if len(findings) > problem_count else tuple(stages)


def _by_splits(layers: list[RequestedLayer], splits: tuple[str, ...], findings: Findings) -> list[RequestedStage]:
    """Cut the model before each layer named in ``splits``."""
    names = [layer.spec.name for layer in layers]
    cuts = [0]
    for index, name in enumerate(splits):
        path = ("pipeline", "splits", index)
        if name not in names:
            hint, known_names = did_you_mean(name, names), list_names(names, name)
            findings.add(path, f"expected the name of a layer, got {name!r}{hint} (the layers are {known_names})")
        elif names.index(name) == 0:
            text = f"expected a layer after the first, got {name!r}, which would leave the first stage empty"
            findings.add(path, text)
        elif names.index(name) <= cuts[-1]:
            order = f"list splits once each, in the order of the layers, {', '.join(names)}"
            findings.add(path, f"expected a layer after {names[cuts[-1]]!r}, got {name!r}: {order}")
        else:
            cuts.append(names.index(name))
    ends = [*cuts[1:], len(layers)]
    return [
        RequestedStage(f"stage{index}", tuple(layers[start:end]))
        for index, (start, end) in enumerate(zip(cuts, ends, strict=True))
    ]


def _by_lists(options: Options, layers: list[RequestedLayer], findings: Findings) -> Iterator[RequestedStage]:
    """Yield the stages as listed; each layer must occur once, in model order."""
    names = [layer.spec.name for layer in layers]
    position = 0
    specs = options.pipeline.stages
    for index, spec in enumerate(specs if isinstance(specs, tuple) else ()):
        path: KeyPath = ("pipeline", "stages", index)
        if isinstance(spec, TimedStageSpec):
            yield RequestedStage(spec.name, timed_spec=spec)
        elif isinstance(spec, PythonSpec):
            yield RequestedStage(spec.name, (RequestedLayer(path, spec),))
        elif isinstance(spec, tuple) and (costs := [item for item in spec if isinstance(item, TimedStageSpec)]) != []:
            yield RequestedStage(f"stage{index}", concurrent=tuple(costs))
        else:
            start, stage_name = position, f"stage{index}"
            if isinstance(spec, NamedStageSpec):
                stage_name, spec, path = spec.name, spec.layers, (*path, "layers")  # noqa: PLW2901 - from here like a list
            for item, name in enumerate(map(str, spec)):
                expected_name = names[position] if position < len(names) else None
                if name == expected_name:
                    position += 1
                    continue
                hint = did_you_mean(name, names) if name not in names else ""
                expectation = f"the layer {expected_name!r}" if expected_name else "no more layers"
                order = f" (the layers in order are {', '.join(names)})" if names else " (there is no model)"
                findings.add((*path, item), f"expected {expectation}, got {name!r}{hint}{order}")
                position = names.index(name) + 1 if name in names else position + 1
            yield RequestedStage(stage_name, tuple(layers[start:position]))
    if names and specs and all(isinstance(spec, TimedStageSpec) for spec in specs):
        text = "expected no model, because the stages have only costs, got a model: give the cycles of its stages"
        findings.add(("pipeline", "stages"), text)
    elif position < len(names):
        text = f"expected all layers of the model in stages, got no stage with {', '.join(names[position:])}"
        findings.add(("pipeline", "stages"), text)


def _check_kinds(stages: list[RequestedStage], findings: Findings) -> None:
    """Record a problem if some stages compute and others have only a cost."""
    timed_stages = [index for index, stage in enumerate(stages) if stage.costs]
    if 0 < len(timed_stages) < len(stages):
        text = "expected a stage that computes, like the other stages, got a stage with only costs"
        findings.add(("pipeline", "stages", timed_stages[0]), text)


def _check_labels(stages: list[RequestedStage], findings: Findings) -> None:
    """Record stages with more bytes of labels than of outputs."""
    for index, stage in enumerate(stages):
        for number, spec in enumerate(stage.costs):
            if spec.label_bytes > spec.output_bytes:
                path: KeyPath = ("pipeline", "stages", index, *([number] if stage.concurrent else []), "label_bytes")
                findings.add(path, f"expected at most the output_bytes, {spec.output_bytes}, got {spec.label_bytes}")


def _check_names(stages: list[RequestedStage], findings: Findings) -> None:
    earlier_names: set[str] = set()
    for index, stage in enumerate(stages):
        own_names = [cost.name for cost in stage.concurrent] or [stage.name]
        for number, name in enumerate(own_names):
            if name in earlier_names:
                text = f"expected a different name for each stage, got {name!r} again"
                findings.add(("pipeline", "stages", index, *([number] if len(own_names) > 1 else []), "name"), text)
            earlier_names.add(name)
