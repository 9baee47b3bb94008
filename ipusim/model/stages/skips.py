"""Run stages with skip connections, where a layer's output is joined with a later layer's output.

A value for a later stage travels through the stages in between, as an additional output and input. Each hop is a copy,
and the gradient returns along the same route, as in programs made by Graphcore's compiler. If the next stage that uses
a value is on the IPU that computed the value, the value stays on this IPU instead, in a FIFO as deep as the number of
stages in between (pipeline_communication_optimizer.cc).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ipusim.model.layers.join import Join, SkipValue
from ipusim.model.layers.layer import Array, Key, Saved
from ipusim.model.stages.bound_stage import BoundStage
from ipusim.model.stages.in_parts import InParts


@dataclass(frozen=True)
class Skips:
    """Values of skip connections handled by a stage.

    Attributes:
        input_name: name of the skip value that equals the stage's input; empty if the input is no skip value.
        arriving_values: values arriving with the input.
        sent_values: values leaving with the output.
        used_values: values joined in this stage.
        stored_values: values kept on the IPU for a later stage, with the depths of their FIFOs.
        fetched_values: values left on the IPU by an earlier stage.
    """

    input_name: str = ""
    arriving_values: tuple[SkipValue, ...] = ()
    sent_values: tuple[SkipValue, ...] = ()
    used_values: tuple[SkipValue, ...] = ()
    stored_values: tuple[tuple[SkipValue, int], ...] = ()
    fetched_values: tuple[SkipValue, ...] = ()

    @property
    def leaving_values(self) -> tuple[SkipValue, ...]:
        """Values that leave the stage or stay on the IPU, in their order after the output."""
        return (*self.sent_values, *(value for value, _ in self.stored_values))

    @property
    def beside_input(self) -> tuple[SkipValue, ...]:
        """Values that arrive or are fetched, in their order after the stage's input."""
        return (*self.arriving_values, *self.fetched_values)

    def elements(self, values: Sequence[SkipValue], selection: Sequence[SkipValue] | None = None) -> int:
        """Return the number of elements of a sample of ``values``; with ``selection``, only of values in it."""
        return sum(math.prod(value.shape) for value in values if selection is None or value in selection)


@dataclass(frozen=True, eq=False)
class Piece:
    """Consecutive layers, an optional join with a value, then values taken from the result.

    ``is_trained`` tells whether any of the layers learns.
    """

    layers: BoundStage
    join: Join | None = None
    skip_values: tuple[SkipValue, ...] = ()
    is_trained: bool = False


class SkippingStage(InParts):
    """Runs the passes of a stage with skip connections, piece by piece."""

    def __init__(self, pieces: Sequence[Piece], skips: Skips) -> None:
        """Store the pieces in order."""
        first_trained_part = next((index for index, piece in enumerate(pieces) if piece.is_trained), len(pieces))
        super().__init__([piece.layers for piece in pieces], first_trained_part)
        self._pieces = tuple(pieces)
        self._skips = skips
        self._arriving = tuple(value.name for value in skips.beside_input)
        self._leaving_names = tuple(value.name for value in skips.leaving_values)

    def forward(self, x: Any, labels: Array | None, key: Key | None = None) -> tuple[Any, Saved]:
        """Run the pieces in order; with additional values, ``x`` and the output are tuples.

        Values fetched or stored on the IPU come last.
        """
        y: Any
        y, values = self._enter(x)
        saved_values = []
        for piece in self._pieces:
            y, piece_saved = piece.layers.forward(y, labels, key)
            y = self._finish(piece, y, values)
            saved_values.append(piece_saved)
        return self._leave(y, values), saved_values

    def _go_back(self, grad: Any, need_input_gradient: bool, run: Callable[[int, Any, bool], Any]) -> Any:
        """Call ``run`` for each piece from the last one; a value's gradients add up on the way."""
        if not need_input_gradient and self._first_trained_part == len(self._pieces):
            return None
        g, *other_gradients = grad if self._leaving_names else (grad,)
        gradients = dict(zip(self._leaving_names, other_gradients, strict=True))
        lowest = 0 if need_input_gradient else self._first_trained_part
        for index in range(len(self._pieces) - 1, lowest - 1, -1):
            piece = self._pieces[index]
            for value in piece.skip_values:
                if value.name in gradients:
                    g = g + value.gradient(gradients.pop(value.name))
            if piece.join is not None:
                name = piece.join.skip_value.name
                g, taken_gradient = piece.join.gradients(g)
                gradients[name] = gradients[name] + taken_gradient if name in gradients else taken_gradient
            g = run(index, g, need_input_gradient or index > lowest)
        if not need_input_gradient:
            return None
        if self._skips.input_name in gradients:
            g = g + gradients.pop(self._skips.input_name)
        return (g, *(gradients[name] for name in self._arriving)) if self._arriving else g

    def predict(self, x: Array) -> Array:
        """Return the output of the layers before the loss, for a stage with the whole network."""
        y, values = self._enter(x)
        for piece in self._pieces:
            y = self._finish(piece, piece.layers.predict(y), values)
        return y

    def _enter(self, x: Any) -> tuple[Array, dict[str, Array]]:
        """Return the input of the first piece, and the skip values that come with it by name."""
        y, *other_values = x if self._arriving else (x,)
        values = dict(zip(self._arriving, other_values, strict=True))
        if self._skips.input_name:
            values[self._skips.input_name] = y
        return y, values

    def _finish(self, piece: Piece, y: Any, values: dict[str, Array]) -> Any:
        """Return the result of a piece after its join, and add the values taken from the result to ``values``."""
        if piece.join is not None:
            y = piece.join.combine(y, values[piece.join.skip_value.name])
        values.update((value.name, value.take(y)) for value in piece.skip_values)
        return y

    def _leave(self, y: Any, values: Mapping[str, Array]) -> Any:
        """Return the output of the stage, with the values that leave it."""
        return (y, *(values[name] for name in self._leaving_names)) if self._leaving_names else y
