"""Computational stages: consecutive layers that one IPU runs as one program, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ipusim.errors import ModelError
from ipusim.model.layer import Array, Described, Key, Layer, Loss, Parameters, Saved, Shape, parameter_count
from ipusim.model.network import NamedLayer, Network
from ipusim.model.optimizers import Optimizer
from ipusim.model.profile import StageProfile, Work

#: Takes the name of a parameter, ``layer/W``, and its gradient.
Receiver = Callable[[str, Array], object]


class Stage(Protocol):
    """What the machine's executor needs of a stage. Parameters are one flat dict, keyed ``layer/W``."""

    @property
    def name(self) -> str:
        """The stage's name in charts and messages."""
        ...

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of its layers, the loss included."""
        ...

    def initial_parameters(self, seed: int, dtype: npt.DTypeLike) -> dict[str, Array]:
        """Draw the parameters; every split of one network draws the same ones."""
        ...

    def forward(
        self, parameters: Parameters, x: Array, labels: Array | None, key: Key | None = None
    ) -> tuple[Array, Saved]:
        """Return the output of the micro-batch, which is the scalar loss where the stage ends in it.

        ``key`` seeds the random draws of the micro-batch in training; None draws nothing.
        """
        ...

    def backward(
        self, parameters: Parameters, saved: Saved, grad: Array | None, need_input_gradient: bool, receive: Receiver
    ) -> Array | None:
        """Return the gradient of the input; ``grad`` is None for the stage with the loss.

        ``receive`` gets each parameter's name and gradient as soon as it is made.
        """
        ...


class _Placed(NamedTuple):
    """A layer at its place in the network, with the flat name of each of its parameters."""

    layer: Layer
    keys: tuple[tuple[str, str], ...]

    def own(self, parameters: Parameters) -> dict[str, Array]:
        return {name: parameters[key] for name, key in self.keys}


@dataclass(frozen=True)
class LayerStage:
    """A stage made of a network's layers.

    Attributes:
        name: the stage's name.
        named_layers: its layers, without the loss.
        loss: the loss, in the stage that ends in it.
        shapes: shape of the input of each layer, then of the last layer's output.
        first_position: place of its first layer in the network.
        is_last: whether no stage follows.
        labels_travel_on: whether the loss stands in a later stage, so that labels pass through this one.
    """

    name: str
    named_layers: tuple[NamedLayer[Layer], ...]
    loss: NamedLayer[Loss] | None
    shapes: tuple[Shape, ...]
    first_position: int
    is_last: bool
    labels_travel_on: bool

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of its layers, the loss included."""
        return tuple(named.name for named in self._described)

    @property
    def _described(self) -> tuple[NamedLayer[Described], ...]:
        layers = tuple(NamedLayer[Described](named.name, named.layer) for named in self.named_layers)
        return layers if self.loss is None else (*layers, NamedLayer[Described](self.loss.name, self.loss.layer))

    @cached_property
    def _placed(self) -> tuple[_Placed, ...]:
        return tuple(
            _Placed(named.layer, _keys(named.name, named.layer, shape))
            for named, shape in zip(self.named_layers, self.shapes, strict=False)
        )

    @cached_property
    def _loss_keys(self) -> tuple[tuple[str, str], ...]:
        return () if self.loss is None else _keys(self.loss.name, self.loss.layer, self.shapes[-1])

    @cached_property
    def _first_trained(self) -> int:
        """Index of the first layer with parameters; backward of a first stage ends there."""
        trained = [i for i, placed in enumerate(self._placed) if placed.keys]
        return trained[0] if trained else len(self._placed)

    @cached_property
    def parameter_count(self) -> int:
        """The number of trainable elements of the stage."""
        return sum(parameter_count(n.layer, shape) for n, shape in zip(self._described, self.shapes, strict=False))

    def initial_parameters(self, seed: int, dtype: npt.DTypeLike) -> dict[str, Array]:
        """Draw each layer's parameters from a generator of (seed, place in the network)."""
        parameters: dict[str, Array] = {}
        for offset, (named, shape) in enumerate(zip(self._described, self.shapes, strict=False)):
            rng = np.random.default_rng([seed, self.first_position + offset])
            own = named.layer.initial_parameters(shape, rng, dtype)
            parameters.update((f"{named.name}/{name}", array) for name, array in own.items())
        return parameters

    def predict(self, parameters: Parameters, x: Array) -> Array:
        """Return the output of the layers before the loss, keeping nothing for a backward pass."""
        for placed in self._placed:
            x, _ = placed.layer.forward(placed.own(parameters), x)
        return x

    def forward(
        self, parameters: Parameters, x: Array, labels: Array | None, key: Key | None = None
    ) -> tuple[Array, Saved]:
        """Run the layers in order, and the loss where the stage ends in it.

        Each layer's key is ``key`` and the layer's place in the network, so that every
        split draws the same. Raises ModelError when the loss finds no labels.
        """
        saved = []
        for place, placed in enumerate(self._placed, self.first_position):
            x, kept = placed.layer.forward(placed.own(parameters), x, None if key is None else (*key, place))
            saved.append(kept)
        if self.loss is not None:
            if labels is None:
                raise ModelError(f"stage {self.name!r}: the loss {self.loss.name!r} needs labels, got none")
            own = {name: parameters[key] for name, key in self._loss_keys}
            x, kept = self.loss.layer.forward(own, x, labels)
            saved.append(kept)
        return x, saved

    def backward(
        self, parameters: Parameters, saved: Saved, grad: Array | None, need_input_gradient: bool, receive: Receiver
    ) -> Array | None:
        """Run the layers' backward passes in reverse.

        Each gradient goes to ``receive`` at once, so that it is added to its
        accumulator while it is in the cache. Without need of an input gradient (the
        first stage) it ends at the first layer with parameters, as TensorFlow's
        gradients of the variables alone do.
        """
        lowest = 0 if need_input_gradient else self._first_trained
        if self.loss is not None:
            own = {name: parameters[key] for name, key in self._loss_keys}
            needed = need_input_gradient or lowest < len(self._placed)
            grad, inner = self.loss.layer.backward(own, saved[-1], 1.0, needed)
            for name, key in self._loss_keys:
                receive(key, inner.pop(name))
        for index in range(len(self._placed) - 1, lowest - 1, -1):
            placed = self._placed[index]
            if grad is None:
                raise ModelError(f"stage {self.name!r}: layer {self.layers[index]!r} got no gradient of its output")
            needed = need_input_gradient or index > lowest
            grad, inner = placed.layer.backward(placed.own(parameters), saved[index], grad, needed)
            for name, key in placed.keys:
                receive(key, inner.pop(name))
        return grad if need_input_gradient else None

    def profile(
        self, batch: int, itemsize: int, label_bytes: int = 0, training: bool = True, optimizer: Optimizer | None = None
    ) -> StageProfile:
        """Return what the stage asks of an IPU for one micro-batch of ``batch`` samples.

        ``label_bytes`` are the bytes of one micro-batch's labels, which go through
        every copy on the way to the stage with the loss. In training, the backward
        pass ends with adding the gradients to their accumulators (a sum for each
        parameter). The last stage sends nothing on: see :meth:`result_bytes`.
        """
        first = self.first_position == 0
        lowest = self._first_trained if first else 0
        forward: list[Work] = []
        backward: list[Work] = []
        for index, (named, shape) in enumerate(zip(self._described, self.shapes, strict=False)):
            cost = named.layer.cost(shape, batch, itemsize, not first or index > lowest)
            forward.append(cost.forward)
            if index >= lowest:
                backward.append(cost.backward)
        count = self.parameter_count
        update: tuple[Work, ...] = ()
        if count:
            backward.insert(0, Work(flops=count, sram_bytes=3 * count * itemsize, itemsize=itemsize))
            update = () if optimizer is None else (optimizer.work(count, itemsize),)
        passing_labels = label_bytes if self.labels_travel_on else 0
        return StageProfile(
            name=self.name,
            forward=tuple(forward),
            backward=tuple(reversed(backward)) if training else (),
            update=update if training else (),
            output_bytes=0 if self.is_last else self.result_bytes(batch, itemsize) + passing_labels,
            gradient_bytes=0 if first or not training else batch * math.prod(self.shapes[0]) * itemsize,
            parameter_bytes=count * itemsize,
        )

    def result_bytes(self, batch: int, itemsize: int) -> int:
        """Return the bytes of the stage's output for one micro-batch: activations, or the scalar loss."""
        return itemsize if self.loss is not None else batch * math.prod(self.shapes[-1]) * itemsize


def _keys(layer_name: str, layer: Described, input_shape: Shape) -> tuple[tuple[str, str], ...]:
    return tuple((name, f"{layer_name}/{name}") for name in layer.parameter_shapes(input_shape))


def build_stages(
    network: Network, groups: Sequence[Sequence[str]], names: Sequence[str] | None = None
) -> tuple[LayerStage, ...]:
    """Make one stage of each group of layer names, as :func:`ipusim.model.network.split` gives them.

    ``names`` are the stages' names, by default ``stage 0`` and so on. Raises
    ModelError unless the groups are the network's layers in order, none empty.
    """
    listed = [name for group in groups for name in group]
    if listed != list(network.names):
        raise ModelError(f"expected the stages to list all layers in order, {', '.join(network.names)}; got {listed}")
    if not all(groups):
        raise ModelError(f"stage {[bool(group) for group in groups].index(False)} has no layers: every stage needs one")
    names = [f"stage {index}" for index in range(len(groups))] if names is None else names
    stages, start = [], 0
    for index, (name, group) in enumerate(zip(names, groups, strict=True)):
        end = min(start + len(group), len(network.layers))
        has_loss = network.loss is not None and index == len(groups) - 1
        stages.append(
            LayerStage(
                name=name,
                named_layers=network.layers[start:end],
                loss=network.loss if has_loss else None,
                shapes=network.shapes[start : end + 1],
                first_position=start,
                is_last=index == len(groups) - 1,
                labels_travel_on=network.loss is not None and not has_loss,
            )
        )
        start = end
    return tuple(stages)
