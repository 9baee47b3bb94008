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

from ipusim.model.functions.variables import draw_key
from ipusim.model.layers.layer import Layer, LayerCost, Loss, Saved, Shape


@dataclass(eq=False)
class Call:
    """One evaluation of a layer, or of a loss, under the names of its parameters.

    Attributes:
        is_loss: whether it is a loss, which takes labels after its input.
        draws_as: name that its random draws are seeded by in training, together with the micro-batch.
        position: in a network, which seeds them instead, as in a scenario; None for the name.
        saved: what its forward pass kept, once it has run.
        shape, batch, itemsize: of the input: of one sample, their number, bytes of an element.
    """

    layer: Layer | Loss
    names: Sequence[str]
    shape: Shape
    batch: int
    itemsize: int
    is_loss: bool = False
    draws_as: str = ""
    position: int | None = None
    saved: Saved = field(default=None, init=False)

    def cost(self, need_input_gradient: bool = True) -> LayerCost:
        """Return the layer's own cost."""
        return self.layer.cost(self.shape, self.batch, self.itemsize, need_input_gradient)


@primitive  # type: ignore[untyped-decorator]
def run_layer(call: Call, x: Any, *rest: Any) -> Any:
    """Evaluate a layer on ``x`` (batch, ...) and its parameters, or a loss on ``x``, labels and its parameters.

    The call saves what the backward pass needs. Raises ModelError for labels that the loss does not take.
    """
    first = int(call.is_loss)
    own, layer = dict(zip(call.names, rest[first:], strict=True)), call.layer
    beside: Any = draw_key(call.draws_as if call.position is None else call.position)
    if call.is_loss:
        beside = rest[0]
        layer.check_labels(call.shape, beside)  # type: ignore[union-attr]
    y, call.saved = layer.forward(own, x, beside)
    return np.asarray(y)


@primitive  # type: ignore[untyped-decorator]
def run_layer_back(call: Call, need_input_gradient: bool, grad: Any, *parameters: Any) -> Any:
    """Return the gradients of a layer's input, where it is needed, and parameters."""
    own = dict(zip(call.names, parameters, strict=True))
    arriving: Any = float(grad) if call.is_loss else grad
    grad_x, gradients = call.layer.backward(own, call.saved, arriving, need_input_gradient)
    return (*((grad_x,) if need_input_gradient else ()), *(gradients[name] for name in call.names))


def _pull_back(argnums: Sequence[int], _: Any, args: Sequence[Any], __: Any) -> Callable[[Any], tuple[Any, ...]]:
    call, need = args[0], 1 in argnums
    first = 2 + call.is_loss
    parameters = args[first:]

    def pull(grad: Any) -> tuple[Any, ...]:
        gradients = run_layer_back(call, need, grad, *parameters)
        return tuple(gradients[0 if at == 1 else at - first + need] for at in argnums)

    return pull


defvjp_argnums(run_layer, _pull_back)
