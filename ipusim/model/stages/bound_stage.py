"""A stage bound to its parameters, which runs its passes.

Binding sorts the flat parameters to their layers once. Done anew in every pass,
it cost as much as a small layer's arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol

from ipusim.base.errors import ModelError
from ipusim.model.functions.users_code import Failing
from ipusim.model.layers.layer import AddsGradients, Array, DescribedT, Key, Layer, Loss, Parameters, Rest, Saved

#: Takes the name of a parameter, ``layer/W``, and its gradient.
Receiver = Callable[[str, Array], object]


class Passes(Protocol):
    """The passes of a stage as the machine's executor runs them; the stages alone know what travels between them."""

    def forward(self, x: Any, labels: Array | None, key: Key | None = None) -> tuple[Any, Saved]:
        """Return the stage's output for one micro-batch, several results as a tuple, and what backward needs."""

    def backward(
        self,
        saved: Saved,
        grad: Any,
        need_input_gradient: bool,
        receive: Receiver,
        totals: Parameters | None = None,
    ) -> Any:
        """Hand the parameters' gradients to ``receive`` and return that of the input, where it is needed."""

    def backward_input(self, saved: Saved, grad: Any, need_input_gradient: bool) -> tuple[Any, Rest]:
        """Do the half of ``backward`` that other stages wait for: return the gradient of the input, and what is left.

        That is all that ``backward_weights`` needs; what ``saved`` holds beside it may go.
        """

    def backward_weights(self, rest: Rest, receive: Receiver, totals: Parameters | None = None) -> None:
        """Hand the parameters' gradients to ``receive``, the bits that ``backward`` hands out: once for each ``rest``.

        Any time later will do, in any order of micro-batches, as long as the parameters are not updated.
        """


@dataclass(frozen=True, eq=False)
class Bound(Generic[DescribedT]):
    """A layer or loss with its parameters by its own names, and the flat name of each that learns.

    ``failing`` names it where one of its passes fails.
    """

    name: str
    layer: DescribedT
    own: Parameters
    keys: tuple[tuple[str, str], ...]
    failing: Failing = field(init=False)

    def __post_init__(self) -> None:
        """Make the block that names the layer in errors, once."""
        object.__setattr__(self, "failing", Failing(f"layer {self.name!r}"))


@dataclass(frozen=True, eq=False)
class _Untouched:
    """The backward pass of a layer whose input needs no gradient, all of which waits for the second half."""

    saved: Saved
    grad: Array


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
        that learns, where the backward pass of a first stage ends. With ``gives_predictions``
        a stage with the loss gives what the loss is taken of, and then the loss.
        """
        self._name = name
        self._first_position = first_position
        self._layers = tuple(layers)
        self._loss = loss
        self._first_trained = lowest
        self._gives_predictions = gives_predictions
        self._all: tuple[Bound[Any], ...] = (*self._layers, *(() if loss is None else (loss,)))
        self._adding = [
            bound.layer if isinstance(bound.layer, AddsGradients) and len(bound.keys) == len(bound.own) else None
            for bound in self._all
        ]

    def forward(
        self, x: Array, labels: Array | None, key: Key | None = None
    ) -> tuple[Array | tuple[Array, Array], Saved]:
        """Run the layers in order, and the loss where the stage ends in it.

        Each layer's key is ``key`` and the layer's place in the network, so that every
        split draws the same. Raises ModelError when the loss finds no labels.
        """
        saved = []
        position = self._first_position
        for bound in self._layers:
            try:
                x, of_layer = bound.layer.forward(bound.own, x, None if key is None else (*key, position))
            except BaseException as error:
                bound.failing.raise_for(error)
            saved.append(of_layer)
            position += 1
        if self._loss is not None:
            if labels is None:
                raise ModelError(f"stage {self._name!r}: the loss {self._loss.name!r} needs labels, got none")
            with self._loss.failing:
                loss, of_layer = self._loss.layer.forward(self._loss.own, x, labels)
            saved.append(of_layer)
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
        lowest = 0 if need_input_gradient else self._first_trained
        return self._go_back(
            saved, grad, need_input_gradient, lowest, lambda index, rest: self._hand_out(index, rest, receive, totals)
        )

    def backward_input(
        self, saved: Saved, grad: Array | None, need_input_gradient: bool
    ) -> tuple[Array | None, list[tuple[int, Rest]]]:
        """Run the first halves in reverse; return the gradient of the input, and what each layer with parameters left.

        Without need of an input gradient, they end where the first layer with parameters has its output's: all of
        that layer's pass is left.
        """
        rests: list[tuple[int, Rest]] = []

        def leave(index: int, rest: Rest) -> None:
            rests.append((index, rest))

        lowest = self._first_trained
        if need_input_gradient or lowest == len(self._layers):
            return self._go_back(saved, grad, need_input_gradient, 0 if need_input_gradient else lowest, leave), rests
        arriving = self._go_back(saved, grad, True, lowest + 1, leave)
        if arriving is None:
            raise self._no_gradient(lowest)
        leave(lowest, _Untouched(saved[lowest], arriving))
        return None, rests

    def backward_weights(
        self, rest: Iterable[tuple[int, Rest]], receive: Receiver, totals: Parameters | None = None
    ) -> None:
        """Run the second halves, from the last layer with parameters to the first."""
        for index, left in rest:
            if isinstance(left, _Untouched):
                bound = self._all[index]
                with bound.failing:
                    _, left = bound.layer.backward_input(bound.own, left.saved, left.grad, False)  # noqa: PLW2901
            self._hand_out(index, left, receive, totals)

    def _go_back(
        self,
        saved: Saved,
        grad: Array | None,
        need_input_gradient: bool,
        lowest: int,
        leave: Callable[[int, Rest], object],
    ) -> Array | None:
        """Run the first halves in reverse, that of the layer ``lowest`` last.

        ``leave`` takes the place of each layer with parameters, and what its second half needs.
        """
        count = len(self._layers)
        if self._loss is not None:
            with self._loss.failing:
                grad, rest = self._loss.layer.backward_input(
                    self._loss.own, saved[-1], 1.0, need_input_gradient or lowest < count
                )
            if self._loss.keys:
                leave(count, rest)
        for index in range(count - 1, lowest - 1, -1):
            bound = self._layers[index]
            if grad is None:
                raise self._no_gradient(index)
            needed = need_input_gradient or index > lowest
            try:
                grad, rest = bound.layer.backward_input(bound.own, saved[index], grad, needed)
            except BaseException as error:
                bound.failing.raise_for(error)
            if bound.keys:
                leave(index, rest)
        return grad if need_input_gradient else None

    def _no_gradient(self, index: int) -> ModelError:
        return ModelError(f"stage {self._name!r}: layer {self._layers[index].name!r} got no gradient of its output")

    def _hand_out(self, index: int, rest: Rest, receive: Receiver, totals: Parameters | None) -> None:
        """Make a layer's gradients of its parameters and hand them out, or let it add them to ``totals`` itself."""
        bound, adding = self._all[index], self._adding[index]
        if totals is not None and adding is not None:
            own = {name: totals[key] for name, key in bound.keys}
            try:
                adding.add_weight_gradients(bound.own, rest, own)
            except BaseException as error:
                bound.failing.raise_for(error)
            return
        with bound.failing:
            gradients = bound.layer.backward_weights(bound.own, rest)
        for name, key in bound.keys:
            receive(key, gradients[name])

    def predict(self, x: Array) -> Array:
        """Return the output of the layers before the loss, keeping nothing for a backward pass."""
        for bound in self._layers:
            with bound.failing:
                x, _ = bound.layer.forward(bound.own, x)
        return x
