"""A stage together with its parameters: what runs its passes.

Binding sorts the flat parameters to their layers once. Done anew in every pass,
it cost as much as a small layer's arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol

from ipusim.errors import ModelError
from ipusim.model.functions.users_code import Failing
from ipusim.model.layers.layer import AddsGradients, Array, DescribedT, Key, Layer, Loss, Parameters, Saved

#: Takes the name of a parameter, ``layer/W``, and its gradient.
Receiver = Callable[[str, Array], object]


class Passes(Protocol):
    """What the machine's executor runs of a stage; what travels between stages is the stages' own affair."""

    def forward(self, x: Any, labels: Array | None, key: Key | None = None) -> tuple[Any, Saved]:
        """Return the stage's output for one micro-batch, several results as a tuple, and what backward needs."""
        ...

    def backward(
        self,
        saved: Saved,
        grad: Any,
        need_input_gradient: bool,
        receive: Receiver,
        totals: Parameters | None = None,
    ) -> Any:
        """Hand the parameters' gradients to ``receive`` and return that of the input, where it is needed."""
        ...


@dataclass(frozen=True, eq=False)
class Bound(Generic[DescribedT]):
    """A layer or loss with its parameters: by its own names, and the flat name of each.

    ``failing`` names it where one of its passes fails.
    """

    name: str
    layer: DescribedT
    own: Parameters
    keys: tuple[tuple[str, str], ...]
    failing: Failing = field(init=False)

    def __post_init__(self) -> None:
        """Make what names the layer, once."""
        object.__setattr__(self, "failing", Failing(f"layer {self.name!r}"))


class BoundStage:
    """Runs the passes of a stage on parameters that are updated in place."""

    def __init__(
        self,
        name: str,
        layers: Sequence[Bound[Layer]],
        loss: Bound[Loss] | None,
        *,
        first_position: int,
        lowest: int,
        gives_predictions: bool = False,
    ) -> None:
        """Take the layers in order.

        ``first_position`` is the place of the first in the network; ``lowest`` is the first
        with parameters, where the backward pass of a first stage ends. With ``gives_predictions``
        a stage with the loss gives what the loss is taken of, and then the loss.
        """
        self._name = name
        self._first_position = first_position
        self._layers = tuple(layers)
        self._loss = loss
        self._first_trained = lowest
        self._gives_predictions = gives_predictions
        self._adding = [bound.layer if isinstance(bound.layer, AddsGradients) else None for bound in self._layers]

    def forward(
        self, x: Array, labels: Array | None, key: Key | None = None
    ) -> tuple[Array | tuple[Array, Array], Saved]:
        """Run the layers in order, and the loss where the stage ends in it.

        Each layer's key is ``key`` and the layer's place in the network, so that every
        split draws the same. Raises ModelError when the loss finds no labels.
        """
        saved = []
        place = self._first_position
        for bound in self._layers:
            with bound.failing:
                x, kept = bound.layer.forward(bound.own, x, None if key is None else (*key, place))
            saved.append(kept)
            place += 1
        if self._loss is not None:
            if labels is None:
                raise ModelError(f"stage {self._name!r}: the loss {self._loss.name!r} needs labels, got none")
            with self._loss.failing:
                loss, kept = self._loss.layer.forward(self._loss.own, x, labels)
            saved.append(kept)
            return ((x, loss) if self._gives_predictions else loss), saved
        return x, saved

    def backward(
        self,
        saved: Saved,
        grad: Array | None,
        need_input_gradient: bool,
        receive: Receiver,
        totals: Parameters | None = None,
    ) -> Array | None:
        """Run the layers' backward passes in reverse; ``grad`` is None for the stage with the loss.

        Each gradient goes to ``receive`` at once, so that it is added to its
        accumulator while it is in the cache. With ``totals``, accumulators keyed
        ``layer/W`` to which gradients are added as they are, layers that can do so add
        theirs themselves. Without need of an input gradient (the first stage) the pass
        ends at the first layer with parameters, as TensorFlow's gradients of the
        variables alone do.
        """
        layers = self._layers
        lowest = 0 if need_input_gradient else self._first_trained
        if self._loss is not None:
            needed = need_input_gradient or lowest < len(layers)
            with self._loss.failing:
                grad, inner = self._loss.layer.backward(self._loss.own, saved[-1], 1.0, needed)
            for name, key in self._loss.keys:
                receive(key, inner.pop(name))
        for index in range(len(layers) - 1, lowest - 1, -1):
            bound = layers[index]
            if grad is None:
                raise ModelError(f"stage {self._name!r}: layer {bound.name!r} got no gradient of its output")
            needed = need_input_gradient or index > lowest
            adding = self._adding[index]
            if totals is not None and adding is not None:
                own = {name: totals[key] for name, key in bound.keys}
                with bound.failing:
                    grad = adding.backward_into(bound.own, saved[index], grad, needed, own)
                continue
            with bound.failing:
                grad, inner = bound.layer.backward(bound.own, saved[index], grad, needed)
            for name, key in bound.keys:
                receive(key, inner.pop(name))
        return grad if need_input_gradient else None

    def predict(self, x: Array) -> Array:
        """Return the output of the layers before the loss, keeping nothing for a backward pass."""
        for bound in self._layers:
            with bound.failing:
                x, _ = bound.layer.forward(bound.own, x)
        return x
