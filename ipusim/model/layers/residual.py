"""Define a residual block: the output of a list of layers, added to their input."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_doc import Doc
from annotated_types import Len, MaxLen

from ipusim.base.errors import ModelError
from ipusim.model.layers import chain
from ipusim.model.layers.layer import Array, Key, LayerCost, Parameters, Rest, Saved, Shape
from ipusim.model.layers.network import chain_shapes
from ipusim.model.work import VectorWork, work_of


@dataclass(frozen=True)
class Residual(chain.InChains):
    """Adds the output of a list of layers to their input.

    The result is ``x + f(x)``, or ``g(x) + f(x)`` with a shortcut g. Parameters of inner layers carry the inner layer's
    name: ``inner/W``.
    """

    kind: ClassVar = "residual"
    #: Whether the layer may be inside another layer, such as a residual block.
    may_be_inner: ClassVar = False

    layers: Annotated[chain.Chain, Len(1, 64), Doc("the layers in order")]
    shortcut: Annotated[
        chain.Chain, MaxLen(64), Doc("layers on the shortcut of the input, such as a 1 x 1 convolution")
    ] = ()

    def __post_init__(self) -> None:
        """Raise ModelError for no layers, duplicate names, or names containing a slash."""
        if not self.layers:
            raise ModelError("a residual block needs at least one layer, got none")
        chain.check_names((*self.layers, *self.shortcut), "a residual block")

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the shape of the sum; raises ModelError if layers and shortcut differ."""
        layers_shape, shortcut_shape = (chain_shapes(branch, input_shape)[-1] for branch in self.chains)
        if layers_shape != shortcut_shape:
            other_side = "shortcut" if self.shortcut else "input"
            raise ModelError(
                f"expected layers whose output has the shape {shortcut_shape} of the {other_side}, got {layers_shape}"
            )
        return layers_shape

    @property
    def chains(self) -> tuple[chain.Chain, ...]:
        """The layers, and the shortcut's layers."""
        return self.layers, self.shortcut

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Return the sum of the layers' and the shortcut's outputs for ``x`` (batch, ...).

        The key of an inner layer is ``key`` and the layer's position; shortcut layers come last.
        """
        y, saved_values = chain.run_forward(self.layers, parameters, x, key, 0)
        shortcut_y, shortcut_saved = chain.run_forward(self.shortcut, parameters, x, key, len(self.layers))
        return y + shortcut_y, (saved_values, shortcut_saved)

    def backward_input(
        self, parameters: Parameters, saved_values: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, Rest]:
        """Return the sum of the input gradients of layers and shortcut, and the rests of both."""
        dx, rest_values = chain.run_backward_input(self.layers, parameters, saved_values[0], grad, need_input_gradient)
        shortcut_dx, shortcut_rest = chain.run_backward_input(
            self.shortcut, parameters, saved_values[1], grad, need_input_gradient
        )
        return (dx + shortcut_dx if dx is not None and shortcut_dx is not None else None), (rest_values, shortcut_rest)

    def backward_weights(self, parameters: Parameters, rest_values: Rest) -> dict[str, Array]:
        """Return the gradients of the inner parameters."""
        gradients = chain.run_backward_weights(self.layers, parameters, rest_values[0])
        return gradients | chain.run_backward_weights(self.shortcut, parameters, rest_values[1])

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work: inner layers in turn, and a sum per element."""
        costs = chain.costs(self.chains, input_shape, batch, itemsize, need_input_gradient)
        sums = batch * math.prod(self.output_shape(input_shape)), batch * math.prod(input_shape)
        add, add_back = (work_of(itemsize, vector=VectorWork(n), accesses=3 * n) for n in sums)
        return chain.cost_in_turn(costs, itemsize, need_input_gradient, forward_end=(add,), backward_end=(add_back,))
