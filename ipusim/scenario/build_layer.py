"""From one layer of a scenario to the layer that computes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ipusim.model.cost import MeasuredWork
from ipusim.model.functions.python_file import load_function
from ipusim.model.layers.add import Add
from ipusim.model.layers.attention import MultiHeadAttention
from ipusim.model.layers.convolution import Conv2D
from ipusim.model.layers.dropout import Dropout
from ipusim.model.layers.embedding import Embedding, PositionEmbedding
from ipusim.model.layers.gru import GRU
from ipusim.model.layers.layer import Layer, LayerCost
from ipusim.model.layers.layers import ActivationLayer, Dense, Flatten
from ipusim.model.layers.lstm import LSTM
from ipusim.model.layers.network import NamedLayer
from ipusim.model.layers.normalisation import GroupNorm, InstanceNorm, LayerNorm
from ipusim.model.layers.parallel import Parallel
from ipusim.model.layers.pooling import AveragePool2D, MaxPool2D
from ipusim.model.layers.residual import Residual
from ipusim.scenario import layer_spec as spec_of
from ipusim.scenario.fields import Node
from ipusim.scenario.findings import Findings
from ipusim.scenario.layer_spec import CyclesSpec, InnerLayerSpec, LayerSpec, ParallelSpec, PythonSpec, ResidualSpec
from ipusim.scenario.limits import check_parameters
from ipusim.scenario.problems import KeyPath

#: What each kind of layer is made by: its keys, but for name and type, are the arguments.
MADE_BY: Final[dict[type[Node], type[Any]]] = {
    spec_of.FlattenSpec: Flatten,
    spec_of.DenseSpec: Dense,
    spec_of.ActivationSpec: ActivationLayer,
    spec_of.DropoutSpec: Dropout,
    spec_of.EmbeddingSpec: Embedding,
    spec_of.PositionEmbeddingSpec: PositionEmbedding,
    spec_of.LayerNormSpec: LayerNorm,
    spec_of.GroupNormSpec: GroupNorm,
    spec_of.InstanceNormSpec: InstanceNorm,
    spec_of.Conv2DSpec: Conv2D,
    spec_of.MaxPool2DSpec: MaxPool2D,
    spec_of.AveragePool2DSpec: AveragePool2D,
    spec_of.LstmSpec: LSTM,
    spec_of.GruSpec: GRU,
    spec_of.MultiHeadAttentionSpec: MultiHeadAttention,
    spec_of.AddSpec: Add,
}


def build_layer(spec: LayerSpec, path: KeyPath, base: Path, findings: Findings) -> Layer | None:
    """Return the layer that ``spec``, written at ``path``, stands for; None after noting why there is none.

    ``base`` is the folder that file names are relative to.
    """
    match spec:
        case ResidualSpec():
            layers = _inner(spec.layers, (*path, "layers"), base, findings)
            shortcut = _inner(spec.shortcut, (*path, "shortcut"), base, findings)
            with findings.at(path):
                return None if layers is None or shortcut is None else Residual(layers, shortcut)
        case ParallelSpec():
            inner = [
                _inner(branch, (*path, "branches", number), base, findings)
                for number, branch in enumerate(spec.branches)
            ]
            branches = tuple(branch for branch in inner if branch is not None)
            with findings.at(path):
                return Parallel(branches) if len(branches) == len(inner) else None
        case PythonSpec():
            from ipusim.model.layers.python_layer import PythonLayer  # noqa: PLC0415 - only models that have one pay for it

            arguments = python_arguments(spec, path, base, findings)
            with findings.at(path):
                return None if arguments is None else PythonLayer(**arguments)
        case _:
            keys = type(spec).model_fields.keys() - {"name", "type"}
            with findings.at(path):
                layer: Layer = MADE_BY[type(spec)](**{key: getattr(spec, key) for key in keys})
                return layer
    return None


def _inner(
    specs: Sequence[InnerLayerSpec], path: KeyPath, base: Path, findings: Findings
) -> tuple[NamedLayer[Layer], ...] | None:
    """Return the layers of a block; None after noting why one cannot be."""
    before = len(findings)
    layers = []
    for index, spec in enumerate(specs):
        if isinstance(spec, PythonSpec) and spec.loss:
            findings.add((*path, index, "loss"), "expected no loss within a block, got one: a loss ends the model")
        elif (layer := build_layer(spec, (*path, index), base, findings)) is not None:
            layers.append(NamedLayer(spec.name, layer))
    return tuple(layers) if len(findings) == before else None


def python_arguments(spec: PythonSpec, path: KeyPath, base: Path, findings: Findings) -> dict[str, Any] | None:
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
