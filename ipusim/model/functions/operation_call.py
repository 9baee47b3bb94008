"""An operation of several arrays inside a function that autograd traces: its own passes, its own cost.

As a layer's call is (:mod:`ipusim.model.functions.layer_call`), it is one operation to autograd and to
:mod:`ipusim.model.functions.counting`; but it may take and give several arrays, of whole numbers too, and it may have
no gradient at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import autograd.builtins  # noqa: F401 - lets an operation have several results under a trace
from autograd.core import VJPNode
from autograd.extend import defvjp_argnums, primitive
from autograd.tracer import register_notrace

from ipusim.model.functions.surrounded import surroundings
from ipusim.model.layers.layer import Array, LayerCost, Saved


class Operation(Protocol):
    """A function of arrays with its gradient and its work, in plain NumPy."""

    def forward(self, *arrays: Array) -> tuple[tuple[Array, ...], Saved]:
        """Return the results, and what backward needs."""

    def backward(self, saved: Saved, grads: Sequence[Array], argnums: Sequence[int]) -> Sequence[Array]:
        """Return the gradients of the arguments ``argnums``, counted from 0, from those of all results.

        An operation without a gradient is never asked.
        """

    def cost(self, arrays: Sequence[Array], argnums: Sequence[int]) -> LayerCost:
        """Return the work of both passes on such arrays; backward makes the gradients of the arguments ``argnums``."""


@dataclass(eq=False)
class OperationCall:
    """One evaluation of an operation.

    Attributes:
        arrays: what it was called with, once its forward pass has run.
        saved: what that kept.
    """

    operation: Operation
    arrays: tuple[Array, ...] = ()
    saved: Saved = field(default=None, init=False)

    def forward(self, *arrays: Array) -> tuple[Array, ...]:
        """Run the forward pass."""
        self.arrays = arrays
        results, self.saved = self.operation.forward(*arrays)
        if (counter := surroundings().counter) is not None:
            counter(self.operation.cost(arrays, range(len(arrays))).forward, arrays, results)
        return results


@primitive  # type: ignore[untyped-decorator]
def _run(call: OperationCall, *arrays: Any) -> Any:
    return call.forward(*arrays)


@primitive  # type: ignore[untyped-decorator]
def _run_back(call: OperationCall, argnums: Sequence[int], *grads: Any) -> Any:
    gradients = tuple(call.operation.backward(call.saved, grads, argnums))
    if (counter := surroundings().counter) is not None:
        counter(call.operation.cost(call.arrays, argnums).backward, grads, gradients)
    return gradients


def _pull_back(argnums: Sequence[int], results: Any, args: Sequence[Any], _: Any) -> Callable[[Any], tuple[Any, ...]]:
    call, argnums = args[0], [at - 1 for at in argnums]

    def pull(grads: Any) -> tuple[Any, ...]:
        gradients = _run_back(call, argnums, *(grads[index] for index in range(len(results))))
        return tuple(gradients[index] for index in range(len(argnums)))

    return pull


defvjp_argnums(_run, _pull_back)


@primitive  # type: ignore[untyped-decorator]
def _run_apart(call: OperationCall, *arrays: Any) -> Any:
    return call.forward(*arrays)


# No gradient goes back through it: its results are constants to what follows.
register_notrace(VJPNode, _run_apart)


def operate(operation: Operation, *arrays: Any) -> tuple[Any, ...]:
    """Return the results of an operation on arrays, through which gradients go back."""
    results = _run(OperationCall(operation), *arrays)
    return tuple(results[index] for index in range(len(results)))


def operate_without_gradient(operation: Operation, *arrays: Any) -> tuple[Any, ...]:
    """Return the results of an operation that has no gradient."""
    results: tuple[Any, ...] = _run_apart(OperationCall(operation), *arrays)
    return results
