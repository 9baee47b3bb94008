"""Build a Network with matching shapes from the layers of a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ipusim.base.errors import ModelError
from ipusim.base.near_names import did_you_mean, list_names
from ipusim.model.data.datasets import Dataset
from ipusim.model.functions.python_file import load_function
from ipusim.model.layers.join import Join
from ipusim.model.layers.layer import Layer, LayerCost, Loss, Shape, SharesParameters, TakesTokens, View
from ipusim.model.layers.network import NamedLayer, Network, why_not_shared
from ipusim.model.work import MeasuredWork
from ipusim.runs.assemble.limits import check_parameters
from ipusim.runs.assemble.model_layers import RequestedLayer
from ipusim.runs.findings import Findings
from ipusim.runs.problems import KeyPath
from ipusim.runs.request.layer_spec import BuiltSpec, CyclesSpec, InnerLayerSpec, PythonSpec


def is_loss(layer: RequestedLayer) -> bool:
    """Return whether the layer is a loss."""
    spec = layer.spec
    return spec.loss if isinstance(spec, PythonSpec) else spec.row.is_loss


def resolve_network(
    layers: Sequence[RequestedLayer], dataset: Dataset, base: Path, findings: Findings
) -> Network | None:
    """Return the network on samples of ``dataset``; None after recording problems.

    ``base`` is the folder that file names are relative to. Layers after an unsuitable layer are not tried.
    """
    problem_count = len(findings)
    last = layers[-1] if is_loss(layers[-1]) else None
    body = layers[:-1] if last else layers
    if last and not body:
        findings.add(last.path, "expected a layer before the loss, got only the loss")
    for layer in {layer.path: layer for layer in filter(is_loss, body)}.values():  # report each written layer once
        findings.add(layer.path, f"expected the loss as the last layer, got layers after {layer.spec.name!r}")
    shape = dataset.sample_shape
    are_tokens = dataset.x.dtype.kind in "iu"
    named_layers: list[NamedLayer[Layer]] = []
    shapes: dict[str, Shape] = {}
    for layer in body:
        if len(findings) > problem_count:
            return None
        with findings.collect(layer.path, f"{layer.spec.name} does not fit an input of shape {list(shape)}: "):
            if (
                (new_layer := _build_layer(layer.spec, layer.path, base, findings)) is not None
                and (new_layer := _with_source_shape(new_layer, layer, shape, shapes, findings)) is not None
                and _can_share(
                    new_layer, layer, shape, named_layers, (dataset.sample_shape, *shapes.values()), findings
                )
            ):
                are_tokens = _check_tokens(new_layer, are_tokens, dataset)
                shape = shapes[layer.spec.name] = new_layer.output_shape(shape)
                named_layers.append(NamedLayer(layer.spec.name, new_layer))
    loss = None
    if last and len(findings) == problem_count:
        with findings.collect(last.path, f"{last.spec.name} does not fit the labels of {dataset.name}: "):
            if (built_loss := _loss(last, dataset, base, findings)) is not None:
                built_loss.check_labels(shape, dataset.y)
                loss = NamedLayer(last.spec.name, built_loss)
    if len(findings) > problem_count:
        return None
    frozen = (layer.spec for layer in body if isinstance(layer.spec, BuiltSpec) and not layer.spec.trainable)
    return Network(tuple(named_layers), dataset.sample_shape, loss, frozenset(spec.name for spec in frozen))


def _with_source_shape(
    layer: Layer, request: RequestedLayer, shape: Shape, shapes: Mapping[str, Shape], findings: Findings
) -> Layer | None:
    """Return the layer; a joining layer gets the shape of the earlier output. None after recording a problem."""
    if not isinstance(layer, Join):
        return layer
    path = (*request.path, "from")
    if layer.source not in shapes:
        hint = did_you_mean(layer.source, list(shapes))
        known_names = list_names([*shapes], layer.source) or "none"
        findings.add(path, f"expected an earlier layer, got {layer.source!r}{hint} (these are {known_names})")
        return None
    layer = layer.with_source_shape(shapes[layer.source])
    return layer if findings.attempt(path, layer.output_shape, shape) is not None else None


def _can_share(
    layer: Layer,
    request: RequestedLayer,
    shape: Shape,
    earlier: Sequence[NamedLayer[Layer]],
    shapes: Sequence[Shape],
    findings: Findings,
) -> bool:
    """Return whether earlier layers have all parameters that the layer shares; record missing parameters.

    ``shapes`` are the input shapes of the ``earlier`` layers.
    """
    if not isinstance(layer, SharesParameters):
        return True
    layer.output_shape(shape)  # raises for an unsuitable input
    problem_count, own_shapes = len(findings), layer.parameter_shapes(shape)
    keys = request.spec.row.keys if isinstance(request.spec, BuiltSpec) else ()
    for name, owner in layer.shared_parameters.items():
        problem = why_not_shared(owner, own_shapes[name], earlier, shapes)
        naming_keys = [key.name for key in keys if getattr(request.spec, key.argument) == owner[0]]
        if problem:
            findings.add((*request.path, *naming_keys[:1]), problem)
    return len(findings) == problem_count


def _check_tokens(layer: Layer, are_tokens: bool, dataset: Dataset) -> bool:
    """Return whether ``layer`` outputs whole numbers; ``are_tokens`` tells whether its input consists of whole numbers.

    Raises ModelError if an embedding gets other numbers, or another layer gets whole numbers.
    """
    if isinstance(layer, TakesTokens):
        if not are_tokens:
            raise ModelError("an embedding needs whole numbers, such as data of type synthetic_tokens")
        layer.check_ids(dataset.x)
        return False
    if are_tokens and not isinstance(layer, View):
        raise ModelError(f"the whole numbers of {dataset.name} need an embedding as the first layer")
    return are_tokens


def _loss(layer: RequestedLayer, dataset: Dataset, base: Path, findings: Findings) -> Loss | None:
    spec = layer.spec
    if not isinstance(spec, PythonSpec):
        loss: Loss | None = _build(spec, layer.path, base, findings)
        return loss
    from ipusim.model.functions.python_layer import PythonLoss  # noqa: PLC0415 - a slow import, for such models only

    arguments = _python_arguments(spec, layer.path, base, findings)
    labels = dataset.y
    if arguments is None:
        return None
    shape, dtype = labels.shape[1:], str(labels.dtype)
    return findings.attempt(layer.path, PythonLoss, **arguments, label_shape=shape, label_dtype=dtype)


def _build_layer(spec: InnerLayerSpec, path: KeyPath, base: Path, findings: Findings) -> Layer | None:
    """Return the layer for ``spec``, written at ``path``; None after recording problems.

    ``base`` is the folder that file names are relative to.
    """
    if isinstance(spec, PythonSpec):
        from ipusim.model.functions.python_layer import PythonLayer  # noqa: PLC0415 - a slow import, rarely needed

        arguments = _python_arguments(spec, path, base, findings)
        return None if arguments is None else findings.attempt(path, PythonLayer, **arguments)
    layer: Layer | None = _build(spec, path, base, findings)
    return layer


def _build(spec: BuiltSpec, path: KeyPath, base: Path, findings: Findings) -> Any:
    """Return the built-in layer or loss for ``spec``; None after recording problems."""
    problem_count = len(findings)
    arguments = {
        key.argument: _argument(getattr(spec, key.argument), (*path, key.name), base, findings) for key in spec.row.keys
    }
    return findings.attempt(path, spec.row.kind_class, **arguments) if len(findings) == problem_count else None


def _argument(value: Any, path: KeyPath, base: Path, findings: Findings) -> Any:
    """Return a layer's argument for a key: a list of layers, or the value."""
    if not isinstance(value, tuple) or not value:
        return value
    if isinstance(value[0], BuiltSpec | PythonSpec):
        return _inner(value, path, base, findings)
    return tuple(_argument(item, (*path, index), base, findings) for index, item in enumerate(value))


def _inner(
    specs: Sequence[InnerLayerSpec], path: KeyPath, base: Path, findings: Findings
) -> tuple[NamedLayer[Layer], ...] | None:
    """Return the layers of a block; None after recording problems."""
    problem_count = len(findings)
    layers = []
    for index, spec in enumerate(specs):
        if isinstance(spec, PythonSpec) and spec.loss:
            findings.add((*path, index, "loss"), "expected no loss within a block, got a loss: a loss ends the model")
        elif isinstance(spec, BuiltSpec) and not spec.trainable:
            text = (
                "expected true within a block, got false: freeze the block, or put its layers directly into the model"
            )
            findings.add((*path, index, "trainable"), text)
        elif (layer := _build_layer(spec, (*path, index), base, findings)) is not None:
            layers.append(NamedLayer(spec.name, layer))
    return tuple(layers) if len(findings) == problem_count else None


def _python_arguments(spec: PythonSpec, path: KeyPath, base: Path, findings: Findings) -> dict[str, Any] | None:
    """Return the arguments common to layers and losses that are Python functions."""
    if not check_parameters(spec, path, findings):
        return None
    with findings.collect((*path, "python")):
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
