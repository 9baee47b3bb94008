"""Define computational stages: consecutive layers executed by an IPU as a program, forward and backward."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ipusim.model.layers.join import Join, SkipValue
from ipusim.model.layers.layer import Array, Layer, Loss, NetworkPart, NetworkPartT, OnHost, Parameters, Shape
from ipusim.model.layers.network import NamedLayer, first_trained
from ipusim.model.stages.bound_stage import BoundLayer, BoundStage, Passes
from ipusim.model.stages.checkpoints import CheckpointedStage
from ipusim.model.stages.skips import Piece, SkippingStage, Skips
from ipusim.model.stages.summed_stage import SummedStage


class Stage(Protocol):
    """Stage for the machine's executor; parameters are a flat dict, keyed ``layer/W``."""

    @property
    def name(self) -> str:
        """Name in charts and messages."""

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers, the loss included."""

    @property
    def recomputes_itself(self) -> bool:
        """Whether the backward pass recomputes activations from values that the forward pass keeps."""

    @property
    def needs_input_gradient(self) -> bool:
        """Whether the backward pass returns the gradient of the input, because an earlier stage learns."""

    @property
    def frozen_names(self) -> frozenset[str]:
        """Names of parameters that do not learn."""

    @property
    def stores(self) -> tuple[str, ...]:
        """Values that stay on the IPU for a later stage; they come last in the output."""

    @property
    def fetches(self) -> tuple[str, ...]:
        """Values that an earlier stage left on the IPU; they come last in the input."""

    def initial_parameters(self, seed: int, dtype: npt.DTypeLike) -> dict[str, Array]:
        """Draw the parameters; every split of a network draws the same parameters."""

    def initial_untrained(self) -> dict[str, Array]:
        """Return the initial values of variables that passes change without an optimizer."""

    def bind(self, parameters: Parameters) -> Passes:
        """Return the stage's passes on these parameters; afterwards the arrays may only change in place."""


class PlacedLayer(NamedTuple):
    """A layer, its position in the network, and the input shape."""

    position: int
    named_layer: NamedLayer[Any]
    input_shape: Shape


@dataclass(frozen=True)
class LayerStage:
    """A stage made of a network's layers.

    Attributes:
        name: name of the stage.
        named_layers: layers of the stage, without the loss.
        loss: loss at the end of the stage; None for a stage without the loss.
        shapes: input shapes of the layers, then the last layer's output shape.
        first_position: position of the stage's first layer in the network.
        is_last: whether the stage is the last.
        labels_travel_on: whether labels pass through this stage to the loss in a later stage.
        gives_predictions: whether a stage with the loss also returns the loss's input.
        checkpoints: positions, as numbers of preceding layers in the stage, from which the backward pass recomputes
            activations (:mod:`ipusim.model.stages.checkpoints`); empty without recomputation.
        skips: values of skip connections that arrive, leave, or are joined; None without skip connections.
        owners: layers of earlier stages whose parameters are also used in this stage.
        frozen: names of the network's layers whose parameters do not learn.
        needs_input_gradient: whether parameters of earlier layers learn.
    """

    name: str
    named_layers: tuple[NamedLayer[Layer], ...]
    loss: NamedLayer[Loss] | None
    shapes: tuple[Shape, ...]
    first_position: int
    is_last: bool
    labels_travel_on: bool
    gives_predictions: bool = False
    checkpoints: tuple[int, ...] = ()
    skips: Skips | None = None
    owners: tuple[PlacedLayer, ...] = ()
    frozen: frozenset[str] = frozenset()
    needs_input_gradient: bool = False

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers, the loss included."""
        return tuple(named_layer.name for named_layer in self.layers_and_loss)

    @property
    def layers_and_loss(self) -> tuple[NamedLayer[NetworkPart], ...]:
        """Layers in order, the loss last."""
        layers = tuple(
            NamedLayer[NetworkPart](named_layer.name, named_layer.layer) for named_layer in self.named_layers
        )
        return layers if self.loss is None else (*layers, NamedLayer[NetworkPart](self.loss.name, self.loss.layer))

    @cached_property
    def first_trained(self) -> int:
        """Index of the first layer with parameters that learn; backward ends there if no earlier stage learns."""
        return first_trained(self.named_layers, self.shapes, self.frozen)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the stage's parameters, ``layer/W``, including parameters shared with earlier stages."""
        return tuple(self.uses)

    @cached_property
    def uses(self) -> Counter[str]:
        """Number of layers that use a parameter, by name ``layer/W``."""
        return Counter(
            named_layer.flat_name(name)
            for named_layer, shape in zip(self.layers_and_loss, self.shapes, strict=False)
            for name in named_layer.layer.parameter_shapes(shape)
        )

    @property
    def shared_names(self) -> tuple[str, ...]:
        """Names of the parameters owned by an earlier stage."""
        owners = {owner.named_layer.name for owner in self.owners}
        return tuple(name for name in self.parameter_names if name.partition("/")[0] in owners)

    @cached_property
    def frozen_names(self) -> frozenset[str]:
        """Names of parameters that do not learn."""
        return frozenset(name for name in self.uses if name.partition("/")[0] in self.frozen)

    @property
    def is_trained(self) -> bool:
        """Whether any parameter of the stage learns."""
        return bool(self.uses.keys() - self.frozen_names)

    @cached_property
    def parameter_sizes(self) -> dict[str, int]:
        """Elements of the parameters on the IPU, by name ``layer/W``."""
        return {
            named_layer.flat_name(name): math.prod(size)
            for named_layer, shape in zip(self.layers_and_loss, self.shapes, strict=False)
            if not isinstance(named_layer.layer, OnHost)
            for name, size in named_layer.layer.parameter_shapes(shape).items()
        }

    @cached_property
    def owned_sizes(self) -> dict[str, int]:
        """Sizes of the parameters not owned by an earlier stage."""
        shared_names = self.shared_names
        return {name: size for name, size in self.parameter_sizes.items() if name not in shared_names}

    def initial_parameters(self, seed: int, dtype: npt.DTypeLike) -> dict[str, Array]:
        """Draw the layers' parameters from generators seeded by (seed, position in the network).

        Parameters of an earlier layer use the earlier layer's position.
        """
        first = self.first_position
        shapes_by_position = enumerate(zip(self.layers_and_loss, self.shapes, strict=False), first)
        placed_layers = [
            PlacedLayer(position, named_layer, shape) for position, (named_layer, shape) in shapes_by_position
        ]
        parameters: dict[str, Array] = {}
        for position, named_layer, shape in (*self.owners, *placed_layers):
            arrays = named_layer.layer.initial_parameters(shape, np.random.default_rng([seed, position]), dtype)
            layer_parameters = {
                named_layer.flat_name(name): array
                for name, array in arrays.items()
                if name not in named_layer.shared_parameters
            }
            parameters.update(
                (name, array) for name, array in layer_parameters.items() if position >= first or name in self.uses
            )
        return parameters

    def initial_untrained(self) -> dict[str, Array]:
        """Return no variables: layers only have parameters."""
        return {}

    @property
    def stores(self) -> tuple[str, ...]:
        """Values of skip connections that stay on the IPU for a later stage."""
        return tuple(value.name for value, _ in self.skips.stored_values) if self.skips else ()

    @property
    def fetches(self) -> tuple[str, ...]:
        """Values of skip connections that an earlier stage left on the IPU."""
        return tuple(value.name for value in self.skips.fetched_values) if self.skips else ()

    @property
    def recomputes_itself(self) -> bool:
        """Whether the backward pass recomputes activations from checkpoints."""
        return bool(self.checkpoints)

    @cached_property
    def clusters(self) -> tuple[LayerStage, ...]:
        """Layers between checkpoints, as stages; the whole stage without checkpoints."""
        if not self.checkpoints:
            return (self,)
        ends = (*self.checkpoints, len(self.named_layers))
        return tuple(
            self._section(start, end, with_loss=number == len(self.checkpoints))
            for number, (start, end) in enumerate(pairwise((0, *ends)))
        )

    def _section(self, start: int, end: int, with_loss: bool) -> LayerStage:
        """Return the layers from ``start`` to before ``end`` as a stage without checkpoints or skip connections."""
        return replace(
            self,
            named_layers=self.named_layers[start:end],
            loss=self.loss if with_loss else None,
            shapes=self.shapes[start : end + 1],
            first_position=self.first_position + start,
            needs_input_gradient=self.needs_input_gradient or self.first_trained < start,
            checkpoints=(),
            skips=None,
        )

    @cached_property
    def first_trained_cluster(self) -> int:
        """Index of the first cluster that learns; the number of clusters if no cluster learns.

        Unless an earlier stage learns, the backward pass ends at this cluster.
        """
        return next((number for number, cluster in enumerate(self.clusters) if cluster.is_trained), len(self.clusters))

    def bind(self, parameters: Parameters) -> Passes:
        """Sort the flat parameters by layer, for passes on these arrays."""
        shared_uses = {name: uses for name, uses in self.uses.items() if uses > 1}
        passes: Passes
        if self.checkpoints:
            clusters = [cluster.bind_layers(parameters) for cluster in self.clusters]
            passes = CheckpointedStage(clusters, keeps_tail=self.is_last, first_trained_part=self.first_trained_cluster)
        else:
            passes = self.whole(parameters)
        return SummedStage(passes, shared_uses) if shared_uses else passes

    def whole(self, parameters: Parameters) -> BoundStage | SkippingStage:
        """Return the passes without recomputation, for evaluation."""
        if self.skips is None:
            return self.bind_layers(parameters)
        return SkippingStage(list(self._pieces(self.skips, parameters)), self.skips)

    def _pieces(self, skips: Skips, parameters: Parameters) -> Iterator[Piece]:
        """Yield pieces that end at a join or at an output used later, then the remaining layers."""
        values = dict.fromkeys((*skips.used_values, *skips.leaving_values))
        start = 0
        for index, named_layer in enumerate(self.named_layers):
            join = named_layer.layer if isinstance(named_layer.layer, Join) else None
            taken_values = tuple(value for value in values if value.source == named_layer.name)
            if join is not None or taken_values:
                yield self._piece(start, index + (join is None), parameters, join, taken_values)
                start = index + 1
        yield self._piece(start, len(self.named_layers), parameters)

    def _piece(
        self,
        start: int,
        end: int,
        parameters: Parameters,
        join: Join | None = None,
        taken_values: tuple[SkipValue, ...] = (),
    ) -> Piece:
        layers = self._section(start, end, with_loss=join is None and not taken_values)
        return Piece(layers.bind_layers(parameters), join, taken_values, layers.is_trained)

    def bind_layers(self, parameters: Parameters) -> BoundStage:
        """Return the passes of the whole sequence of layers."""
        layers = [
            _bind_layer(named_layer, shape, parameters, self.frozen)
            for named_layer, shape in zip(self.named_layers, self.shapes, strict=False)
        ]
        loss = None if self.loss is None else _bind_layer(self.loss, self.shapes[-1], parameters, self.frozen)
        return BoundStage(
            self.name,
            layers,
            loss,
            first_position=self.first_position,
            lowest=self.first_trained,
            gives_predictions=self.gives_predictions,
        )

    def result_elements(self, batch: int) -> tuple[int, ...]:
        """Return the sizes of the stage's results per micro-batch: activations, the loss, or both."""
        activations = batch * math.prod(self.shapes[-1])
        if self.loss is None:
            return (activations,)
        return (activations, 1) if self.gives_predictions else (1,)

    def result_bytes(self, batch: int, itemsize: int) -> int:
        """Return the bytes of the stage's results per micro-batch."""
        return sum(self.result_elements(batch)) * itemsize


def _bind_layer(
    named_layer: NamedLayer[NetworkPartT], input_shape: Shape, parameters: Parameters, frozen: frozenset[str]
) -> BoundLayer[NetworkPartT]:
    """Return the layer with its parameters, by their names in the layer."""
    layer_parameters = {
        name: parameters[named_layer.flat_name(name)] for name in named_layer.layer.parameter_shapes(input_shape)
    }
    return BoundLayer(
        named_layer.name,
        named_layer.layer,
        layer_parameters,
        tuple(named_layer.trained_names(input_shape, frozen).items()),
    )
