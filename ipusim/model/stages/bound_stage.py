"""Bind a stage to its parameters, and run its passes.

The parameters of a network are arrays by flat name, ``layer/W``. Binding sorts them by layer, once: a sort in every
pass would take as long as a small layer's arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol

from ipusim.base.errors import ModelError
from ipusim.model.functions.users_code import Failing
from ipusim.model.layers.layer import AddsGradients, Array, Key, Layer, Loss, NetworkPartT, Parameters, Rest, Saved

#: Function of a parameter's name, ``layer/W``, and its gradient.
Receiver = Callable[[str, Array], object]


class Passes(Protocol):
    """Passes of a stage for the machine's executor; the executor does not inspect values between stages."""

    def forward(self, x: Any, labels: Array | None, key: Key | None = None) -> tuple[Any, Saved]:
        """Return the stage's output (several results as a tuple), and the saved data."""

    def backward(
        self,
        saved_values: Saved,
        grad: Any,
        need_input_gradient: bool,
        receive: Receiver,
        totals: Parameters | None = None,
    ) -> Any:
        """Pass the parameters' gradients to ``receive`` and return the input's gradient, if needed."""

    def backward_input(self, saved_values: Saved, grad: Any, need_input_gradient: bool) -> tuple[Any, Rest]:
        """Run the first half of ``backward``: return the input's gradient, and the data of the second half.

        Other stages wait for the gradient. Afterwards ``saved_values`` may be released: the returned data is all that
        ``backward_weights`` needs.
        """

    def backward_weights(self, rest_values: Rest, receive: Receiver, totals: Parameters | None = None) -> None:
        """Run the second half of ``backward``: pass the same gradients of parameters, bit by bit, to ``receive``.

        The second half runs once per ``rest_values``, at any time before the parameters are updated, in any order of
        micro-batches.
        """


@dataclass(frozen=True, eq=False)
class BoundLayer(Generic[NetworkPartT]):
    """A layer or loss with its parameters.

    ``parameters`` contains the parameters by their names in the layer, ``keys`` the name in the layer and the flat
    name of each parameter that learns. ``failing`` names the layer in errors of its passes.
    """

    name: str
    layer: NetworkPartT
    parameters: Parameters
    keys: tuple[tuple[str, str], ...]
    failing: Failing = field(init=False)

    def __post_init__(self) -> None:
        """Create the block that names the layer in errors, once."""
        object.__setattr__(self, "failing", Failing(f"layer {self.name!r}"))


@dataclass(frozen=True, eq=False)
class _LeftForWeights:
    """Backward pass of a layer without an input gradient, entirely left to the second half."""

    saved_values: Saved
    grad: Array


class BoundStage:
    """Runs the passes of a stage on parameters updated in place."""

    def __init__(
        self,
        name: str,
        layers: Sequence[BoundLayer[Layer]],
        loss: BoundLayer[Loss] | None,
        *,
        first_position: int,
        lowest: int,
        gives_predictions: bool = False,
    ) -> None:
        """Store the layers in order.

        ``first_position`` is the first layer's position in the network. ``lowest`` is the index of the first layer that
        learns; the backward pass ends there if no earlier stage learns. With ``gives_predictions`` a stage with the
        loss returns the loss's input, then the loss.
        """
        self._name = name
        self._first_position = first_position
        self._layers = tuple(layers)
        self._loss = loss
        self._first_trained = lowest
        self._gives_predictions = gives_predictions
        self._layers_and_loss: tuple[BoundLayer[Any], ...] = (*self._layers, *(() if loss is None else (loss,)))
        self._adders = [
            bound_layer.layer
            if isinstance(bound_layer.layer, AddsGradients) and len(bound_layer.keys) == len(bound_layer.parameters)
            else None
            for bound_layer in self._layers_and_loss
        ]

    def forward(
        self, x: Array, labels: Array | None, key: Key | None = None
    ) -> tuple[Array | tuple[Array, Array], Saved]:
        """Run the layers in order, and the loss if the stage ends in a loss.

        A layer's key is ``key`` and the layer's position in the network: every split gives the same draws. Raises
        ModelError for a loss without labels.
        """
        saved_values = []
        position = self._first_position
        for bound_layer in self._layers:
            try:
                x, layer_saved = bound_layer.layer.forward(
                    bound_layer.parameters, x, None if key is None else (*key, position)
                )
            except BaseException as error:
                bound_layer.failing.raise_for(error)
            saved_values.append(layer_saved)
            position += 1
        if self._loss is not None:
            if labels is None:
                raise ModelError(f"stage {self._name!r}: the loss {self._loss.name!r} needs labels, got none")
            with self._loss.failing:
                loss, layer_saved = self._loss.layer.forward(self._loss.parameters, x, labels)
            saved_values.append(layer_saved)
            return ((x, loss) if self._gives_predictions else loss), saved_values
        return x, saved_values

    def backward(
        self,
        saved_values: Saved,
        grad: Array | None,
        need_input_gradient: bool,
        receive: Receiver,
        totals: Parameters | None = None,
    ) -> Array | None:
        """Run the layers' backward passes in reverse; ``grad`` is None for the stage with the loss.

        ``receive`` gets every gradient as soon as it is computed, and can add it to an accumulator while it is in the
        cache. ``totals`` are accumulators keyed ``layer/W`` for unscaled gradients; layers that can do so add to
        ``totals`` directly. Without an input gradient (no earlier stage learns) the pass ends at the first layer that
        learns, like TensorFlow's gradients of variables.
        """
        lowest = 0 if need_input_gradient else self._first_trained
        return self._go_back(
            saved_values,
            grad,
            need_input_gradient,
            lowest,
            lambda index, rest_values: self._hand_out(index, rest_values, receive, totals),
        )

    def backward_input(
        self, saved_values: Saved, grad: Array | None, need_input_gradient: bool
    ) -> tuple[Array | None, list[tuple[int, Rest]]]:
        """Run the first halves in reverse; return the input's gradient, and the data of the second halves.

        Without an input gradient, the first halves end at the output of the first layer that learns. The layer's
        whole backward pass is left for the second half.
        """
        layer_rests: list[tuple[int, Rest]] = []

        def keep_rest(index: int, rest_values: Rest) -> None:
            layer_rests.append((index, rest_values))

        lowest = self._first_trained
        if need_input_gradient or lowest == len(self._layers):
            return self._go_back(
                saved_values, grad, need_input_gradient, 0 if need_input_gradient else lowest, keep_rest
            ), layer_rests
        output_gradient = self._go_back(saved_values, grad, True, lowest + 1, keep_rest)
        if output_gradient is None:
            raise self._no_gradient(lowest)
        keep_rest(lowest, _LeftForWeights(saved_values[lowest], output_gradient))
        return None, layer_rests

    def backward_weights(
        self, layer_rests: Iterable[tuple[int, Rest]], receive: Receiver, totals: Parameters | None = None
    ) -> None:
        """Run the second halves, from the last layer that learns to the first."""
        for index, layer_rest in layer_rests:
            if isinstance(layer_rest, _LeftForWeights):
                bound_layer = self._layers_and_loss[index]
                with bound_layer.failing:
                    _, layer_rest = bound_layer.layer.backward_input(  # noqa: PLW2901
                        bound_layer.parameters, layer_rest.saved_values, layer_rest.grad, False
                    )
            self._hand_out(index, layer_rest, receive, totals)

    def _go_back(
        self,
        saved_values: Saved,
        grad: Array | None,
        need_input_gradient: bool,
        lowest: int,
        keep_rest: Callable[[int, Rest], object],
    ) -> Array | None:
        """Run the first halves in reverse, down to the layer ``lowest``.

        ``leave`` receives the positions of layers that learn, and the rests for their second halves.
        """
        count = len(self._layers)
        if self._loss is not None:
            with self._loss.failing:
                grad, rest_values = self._loss.layer.backward_input(
                    self._loss.parameters, saved_values[-1], 1.0, need_input_gradient or lowest < count
                )
            if self._loss.keys:
                keep_rest(count, rest_values)
        for index in range(count - 1, lowest - 1, -1):
            bound_layer = self._layers[index]
            if grad is None:
                raise self._no_gradient(index)
            needs_gradient = need_input_gradient or index > lowest
            try:
                grad, rest_values = bound_layer.layer.backward_input(
                    bound_layer.parameters, saved_values[index], grad, needs_gradient
                )
            except BaseException as error:
                bound_layer.failing.raise_for(error)
            if bound_layer.keys:
                keep_rest(index, rest_values)
        return grad if need_input_gradient else None

    def _no_gradient(self, index: int) -> ModelError:
        return ModelError(f"stage {self._name!r}: layer {self._layers[index].name!r} got no gradient of its output")

    def _hand_out(self, index: int, rest_values: Rest, receive: Receiver, totals: Parameters | None) -> None:
        """Compute a layer's parameter gradients and hand them out, or let the layer add to ``totals``."""
        bound_layer, adder = self._layers_and_loss[index], self._adders[index]
        if totals is not None and adder is not None:
            layer_totals = {name: totals[key] for name, key in bound_layer.keys}
            try:
                adder.add_weight_gradients(bound_layer.parameters, rest_values, layer_totals)
            except BaseException as error:
                bound_layer.failing.raise_for(error)
            return
        with bound_layer.failing:
            gradients = bound_layer.layer.backward_weights(bound_layer.parameters, rest_values)
        for name, key in bound_layer.keys:
            receive(key, gradients[name])

    def predict(self, x: Array) -> Array:
        """Return the output of the layers before the loss, without saving data for a backward pass."""
        for bound_layer in self._layers:
            with bound_layer.failing:
                x, _ = bound_layer.layer.forward(bound_layer.parameters, x)
        return x
