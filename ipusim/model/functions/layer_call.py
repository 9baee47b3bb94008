"""A layer or loss of this package inside a function that autograd traces: its own passes, its own cost.

To autograd a call is one operation, whose gradient is the layer's backward pass; to
:mod:`ipusim.model.functions.counting` it is the layer's work. So a model costs and keeps the same
whether its stages are lists of layers or functions that call them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import autograd.builtins  # noqa: F401 - lets an operation have several results under a trace
import numpy as np
from autograd.extend import defvjp_argnums, primitive

from ipusim.model.layers.layer import Array, Key, Layer, LayerCost, Loss, Saved, Shape


@dataclass(eq=False)
class Call:
    """One evaluation of a layer (or, with ``labels``, of a loss) under the names of its parameters.

    Attributes:
        key: what seeds its random draws, in training.
        saved: what its forward pass kept, once it has run.
        shape, batch, itemsize: of the input: of one sample, their number, bytes of an element.
    """

    layer: Layer | Loss
    names: Sequence[str]
    shape: Shape
    batch: int
    itemsize: int
    labels: Array | None = None
    key: Key | None = None
    saved: Saved = field(default=None, init=False)

    def cost(self, need_input_gradient: bool = True) -> LayerCost:
        """Return the layer's own cost."""
        return self.layer.cost(self.shape, self.batch, self.itemsize, need_input_gradient)

    def forward(self, x: Array, parameters: Sequence[Array]) -> Array:
        """Run the forward pass and keep what the backward pass needs."""
        own, layer = dict(zip(self.names, parameters, strict=True)), self.layer
        args: tuple[Any, ...] = (self.key,) if self.labels is None else (self.labels,)
        y, self.saved = layer.forward(own, x, *args)
        return np.asarray(y)

    def backward(self, grad: Array, parameters: Sequence[Array], need_input_gradient: bool) -> tuple[Any, ...]:
        """Return the gradients of the input, where it is needed, and of each parameter."""
        own = dict(zip(self.names, parameters, strict=True))
        arriving: Any = grad if self.labels is None else float(grad)
        grad_x, gradients = self.layer.backward(own, self.saved, arriving, need_input_gradient)
        return (*((grad_x,) if need_input_gradient else ()), *(gradients[name] for name in self.names))


@primitive  # type: ignore[untyped-decorator]
def run_layer(call: Call, x: Any, *parameters: Any) -> Any:
    """Evaluate a layer on ``x`` (batch, ...)."""
    return call.forward(x, parameters)


@primitive  # type: ignore[untyped-decorator]
def run_layer_back(call: Call, need_input_gradient: bool, grad: Any, *parameters: Any) -> Any:
    """Return the gradients of a layer's input, where it is needed, and parameters."""
    return call.backward(grad, parameters, need_input_gradient)


def _pull_back(argnums: Sequence[int], _: Any, args: Sequence[Any], __: Any) -> Callable[[Any], tuple[Any, ...]]:
    call, parameters, need = args[0], args[2:], 1 in argnums
    shift = 1 if need else 2  # where the gradients begin among the arguments

    def pull(grad: Any) -> tuple[Any, ...]:
        found = run_layer_back(call, need, grad, *parameters)
        return tuple(found[at - shift] for at in argnums)

    return pull


defvjp_argnums(run_layer, _pull_back)
