"""From the layers of a scenario to a Network whose shapes fit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ipusim.model.cost import MeasuredWork
from ipusim.model.datasets import Dataset
from ipusim.model.layer import Layer, LayerCost, Loss
from ipusim.model.layers import Dense, Flatten
from ipusim.model.losses import MeanSquaredError, SoftmaxCrossEntropy
from ipusim.model.network import NamedLayer, Network
from ipusim.model.python_file import load_function
from ipusim.scenario.findings import Findings
from ipusim.scenario.limits import check_parameters
from ipusim.scenario.model_spec import (
    CyclesSpec,
    DenseSpec,
    FlattenSpec,
    MeanSquaredErrorSpec,
    PythonSpec,
    SoftmaxCrossEntropySpec,
)
from ipusim.scenario.problems import KeyPath
from ipusim.scenario.stages import PlacedLayer


def is_loss(layer: PlacedLayer) -> bool:
    """Whether the layer is a loss."""
    spec = layer.spec
    return isinstance(spec, SoftmaxCrossEntropySpec | MeanSquaredErrorSpec) or (
        isinstance(spec, PythonSpec) and spec.loss
    )


def resolve_network(layers: Sequence[PlacedLayer], dataset: Dataset, base: Path, findings: Findings) -> Network | None:
    """Return the network on samples of ``dataset``; None after noting why there is none.

    ``base`` is the folder that file names are relative to. Layers behind one that does not fit are not tried.
    """
    before = len(findings)
    last = layers[-1] if is_loss(layers[-1]) else None
    body = layers[:-1] if last else layers
    if last and not body:
        findings.add(last.path, "expected a layer before the loss, got the loss alone")
    for layer in filter(is_loss, body):
        findings.add(layer.path, f"expected the loss as the last layer, got layers after {layer.spec.name!r}")
    shape = dataset.sample_shape
    named: list[NamedLayer[Layer]] = []
    for layer in body:
        if len(findings) > before:
            return None
        with findings.at(layer.path, f"{layer.spec.name} does not fit an input of shape {list(shape)}: "):
            if (built := _layer(layer, base, findings)) is not None:
                shape = built.output_shape(shape)
                named.append(NamedLayer(layer.spec.name, built))
    loss = None
    if last and len(findings) == before:
        with findings.at(last.path, f"{last.spec.name} does not fit the labels of {dataset.name}: "):
            if (built_loss := _loss(last, dataset, base, findings)) is not None:
                built_loss.check_labels(shape, dataset.y)
                loss = NamedLayer(last.spec.name, built_loss)
    return None if len(findings) > before else Network(tuple(named), dataset.sample_shape, loss)


def _layer(layer: PlacedLayer, base: Path, findings: Findings) -> Layer | None:
    match layer.spec:
        case FlattenSpec():
            return Flatten()
        case DenseSpec(units=units, activation=activation, use_bias=use_bias):
            return Dense(units, activation, use_bias)
        case PythonSpec() as spec:
            from ipusim.model.python_layer import PythonLayer  # noqa: PLC0415 - only models that have one pay for it

            arguments = _arguments(spec, layer.path, base, findings)
            with findings.at(layer.path):
                return None if arguments is None else PythonLayer(**arguments)
    return None


def _loss(layer: PlacedLayer, dataset: Dataset, base: Path, findings: Findings) -> Loss | None:
    match layer.spec:
        case SoftmaxCrossEntropySpec():
            return SoftmaxCrossEntropy()
        case MeanSquaredErrorSpec():
            return MeanSquaredError()
        case PythonSpec() as spec:
            from ipusim.model.python_layer import PythonLoss  # noqa: PLC0415 - as above

            arguments = _arguments(spec, layer.path, base, findings)
            labels = dataset.y
            with findings.at(layer.path):
                if arguments is not None:
                    return PythonLoss(**arguments, label_shape=labels.shape[1:], label_dtype=str(labels.dtype))
    return None


def _arguments(spec: PythonSpec, path: KeyPath, base: Path, findings: Findings) -> dict[str, Any] | None:
    """Return what a layer and a loss that are Python functions have in common."""
    if not check_parameters(spec, path, findings):
        return None
    with findings.at((*path, "python")):
        return {
            "function": load_function(spec.python, base),
            "shapes": spec.parameters,
            "fill": spec.fill,
            "given_cost": _given_cost(spec),
        }
    return None


def _given_cost(spec: PythonSpec) -> LayerCost | None:
    if isinstance(spec.cost, CyclesSpec):
        return LayerCost(MeasuredWork(cycles=spec.cost.forward), MeasuredWork(cycles=spec.cost.backward))
    return None
