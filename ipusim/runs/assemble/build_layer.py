"""From one layer of a request to the layer that computes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ipusim.model.functions.python_file import load_function
from ipusim.model.layers.layer import Layer, LayerCost
from ipusim.model.layers.network import NamedLayer
from ipusim.model.work import MeasuredWork
from ipusim.runs.assemble.limits import check_parameters
from ipusim.runs.findings import Findings
from ipusim.runs.problems import KeyPath
from ipusim.runs.request.layer_spec import BuiltSpec, CyclesSpec, InnerLayerSpec, PythonSpec


def build_layer(spec: InnerLayerSpec, path: KeyPath, base: Path, findings: Findings) -> Layer | None:
    """Return the layer that ``spec``, written at ``path``, stands for; None after noting why there is none.

    ``base`` is the folder that file names are relative to.
    """
    if isinstance(spec, PythonSpec):
        from ipusim.model.functions.python_layer import PythonLayer  # noqa: PLC0415 - only models that have one pay for it

        arguments = python_arguments(spec, path, base, findings)
        with findings.at(path):
            return None if arguments is None else PythonLayer(**arguments)
        return None
    layer: Layer | None = build(spec, path, base, findings)
    return layer


def build(spec: BuiltSpec, path: KeyPath, base: Path, findings: Findings) -> Any:
    """Return the layer or loss of the table that ``spec`` stands for; None after noting why there is none."""
    before = len(findings)
    arguments = {
        key.argument: _argument(getattr(spec, key.argument), (*path, key.name), base, findings) for key in spec.row.keys
    }
    with findings.at(path):
        return spec.row.makes(**arguments) if len(findings) == before else None
    return None


def _argument(value: Any, path: KeyPath, base: Path, findings: Findings) -> Any:
    """Return a layer's argument for a key: layers in order for a list of layers, else the value."""
    if not isinstance(value, tuple) or not value:
        return value
    if isinstance(value[0], BuiltSpec | PythonSpec):
        return _inner(value, path, base, findings)
    return tuple(_argument(item, (*path, index), base, findings) for index, item in enumerate(value))


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
    """Return the arguments common to a layer and a loss that are Python functions."""
    if not check_parameters(spec, path, findings):
        return None
    with findings.at((*path, "python")):
        return {
            "function": load_function(spec.python, base),
            "shapes": spec.parameters,
            "fill": spec.fill,
            "stated_cost": _stated_cost(spec),
        }
    return None


def _stated_cost(spec: PythonSpec) -> LayerCost | None:
    if isinstance(spec.cost, CyclesSpec):
        return LayerCost(MeasuredWork(cycles=spec.cost.forward), MeasuredWork(cycles=spec.cost.backward))
    return None
