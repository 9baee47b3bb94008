"""Define a network: named layers with matching shapes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic

from ipusim.base.errors import ModelError
from ipusim.base.near_names import did_you_mean
from ipusim.model.layers.join import Join
from ipusim.model.layers.layer import Layer, Loss, NetworkPartT, OnHost, Shape, SharesParameters


@dataclass(frozen=True)
class NamedLayer(Generic[NetworkPartT]):
    """A layer or loss with its name in splits, weights and charts."""

    name: str
    layer: NetworkPartT

    @cached_property
    def shared_parameters(self) -> Mapping[str, tuple[str, str]]:
        """Owner of each shared parameter, as (earlier layer, name in that layer), by the name in this layer."""
        return self.layer.shared_parameters if isinstance(self.layer, SharesParameters) else {}

    def flat_name(self, parameter: str) -> str:
        """Return a parameter's name in the whole network, ``layer/W``, with the owner's layer name."""
        return "/".join(self.shared_parameters.get(parameter, (self.name, parameter)))

    def trained_names(self, input_shape: Shape, frozen: Collection[str]) -> dict[str, str]:
        """Return the flat name ``layer/W`` of each parameter that learns, by the name in the layer.

        Args:
            input_shape: shape of a sample of the layer's input.
            frozen: names of layers whose parameters do not learn.
        """
        names = {name: self.flat_name(name) for name in self.layer.parameter_shapes(input_shape)}
        return {name: flat for name, flat in names.items() if flat.partition("/")[0] not in frozen}

    def owned_shapes(self, input_shape: Shape) -> dict[str, Shape]:
        """Return the shapes of unshared parameters, by local name."""
        shapes = self.layer.parameter_shapes(input_shape)
        return {name: shape for name, shape in shapes.items() if name not in self.shared_parameters}


def chain_shapes(layers: Sequence[NamedLayer[Layer]], input_shape: Shape) -> tuple[Shape, ...]:
    """Return the shapes of the layers' inputs, then of the last layer's output.

    Raises ModelError, with the layer's name, for an unsuitable input.
    """
    shapes = [input_shape]
    for named_layer in layers:
        try:
            shapes.append(named_layer.layer.output_shape(shapes[-1]))
        except ModelError as error:
            raise ModelError(f"layer {named_layer.name!r} on an input of shape {shapes[-1]}: {error}") from None
    return tuple(shapes)


def first_trained(layers: Sequence[NamedLayer[Layer]], shapes: Sequence[Shape], frozen: Collection[str]) -> int:
    """Return the index of the first of ``layers`` with parameters that learn; the number of layers if none learn.

    Args:
        layers: layers in order.
        shapes: shape of the input of each layer.
        frozen: names of layers whose parameters do not learn.
    """
    indices = (
        index
        for index, (named_layer, shape) in enumerate(zip(layers, shapes, strict=False))
        if named_layer.trained_names(shape, frozen)
    )
    return next(indices, len(layers))


def why_not_shared(
    owner: tuple[str, str], shape: Shape, earlier: Sequence[NamedLayer[Layer]], shapes: Sequence[Shape]
) -> str:
    """Return the reason why a parameter of ``shape`` cannot be shared with ``owner``; empty if it can be shared.

    Args:
        owner: earlier layer, and name in that layer, of the shared parameter.
        shape: shape of the sharing parameter.
        earlier: layers before the sharing layer.
        shapes: input shapes of the ``earlier`` layers.
    """
    layer, name = owner
    if any(named_layer.name == layer and isinstance(named_layer.layer, OnHost) for named_layer in earlier):
        return f"expected a layer whose parameters are on the IPU, got {layer!r}, whose parameters are on the host"
    candidates = {
        named_layer.name: shapes_of[name]
        for named_layer, layer_shape in zip(earlier, shapes, strict=False)
        if name in (shapes_of := named_layer.owned_shapes(layer_shape))
    }
    if layer not in candidates:
        return (
            f"expected an earlier layer with a parameter {name}, got {layer!r}{did_you_mean(layer, list(candidates))} "
            f"(these are {', '.join(candidates) or 'none'})"
        )
    if candidates[layer] != shape:
        return f"expected {layer}/{name} to have the shape {list(shape)}, got {list(candidates[layer])}"
    return ""


def _with_source_shape(
    named_layer: NamedLayer[Layer], earlier: Sequence[NamedLayer[Layer]], shapes: Sequence[Shape]
) -> NamedLayer[Layer]:
    """Return a joining layer with the shape of the earlier output; other layers stay unchanged.

    ``shapes`` contains the input shapes of the ``earlier`` layers, then the shape of the last layer's output. Raises
    ModelError if the source is not an earlier layer.
    """
    if not isinstance(named_layer.layer, Join):
        return named_layer
    outputs = {layer.name: shape for layer, shape in zip(earlier, shapes[1:], strict=True)}
    if (source := named_layer.layer.source) not in outputs:
        names = ", ".join(outputs)
        raise ModelError(f"layer {named_layer.name!r}: expected an earlier layer, got {source!r} (these are {names})")
    return NamedLayer(named_layer.name, named_layer.layer.with_source_shape(outputs[source]))


@dataclass(frozen=True)
class Network:
    """Layers applied in order to inputs of equal shape, with a loss at the end in training.

    Raises ModelError for an empty or repeated name, a name with a slash, and a layer that does not accept its input.

    Attributes:
        layers: the layers, at least one.
        input_shape: shape of one sample, without the batch axis.
        loss: the loss, which counts as the last layer; None for inference.
        frozen: names of layers whose parameters do not learn.
        shapes: shape of the input of each layer, then of the last layer's output.
    """

    layers: tuple[NamedLayer[Layer], ...]
    input_shape: Shape
    loss: NamedLayer[Loss] | None = None
    frozen: frozenset[str] = frozenset()
    shapes: tuple[Shape, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check names and shapes."""
        if not self.layers:
            raise ModelError("a network needs at least one layer, got none")
        names: set[str] = set()
        for name in self.names:
            if not name or "/" in name:
                raise ModelError(f"expected a layer name without '/', got {name!r}")
            if name in names:
                raise ModelError(f"two layers are named {name!r}: layer names must differ")
            names.add(name)
        if any(size < 1 for size in self.input_shape):
            raise ModelError(f"expected an input shape of sizes from 1 upwards, got {self.input_shape}")
        layers: list[NamedLayer[Layer]] = []
        shapes = [self.input_shape]
        for named_layer in self.layers:
            layers.append(_with_source_shape(named_layer, layers, shapes))
            shapes += chain_shapes(layers[-1:], shapes[-1])[1:]
        object.__setattr__(self, "layers", tuple(layers))
        object.__setattr__(self, "shapes", tuple(shapes))
        for position, named_layer in enumerate(self.layers):
            parameter_shapes = (
                named_layer.layer.parameter_shapes(shapes[position]) if named_layer.shared_parameters else {}
            )
            for name, owner in named_layer.shared_parameters.items():
                if problem := why_not_shared(owner, parameter_shapes[name], self.layers[:position], shapes):
                    raise ModelError(f"layer {named_layer.name!r}: {problem}")

    @cached_property
    def first_trained(self) -> int:
        """Index of the first layer with parameters that learn; the number of layers if none learn."""
        return first_trained(self.layers, self.shapes, self.frozen)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the layers in order, the loss last."""
        names = tuple(named_layer.name for named_layer in self.layers)
        return names if self.loss is None else (*names, self.loss.name)
