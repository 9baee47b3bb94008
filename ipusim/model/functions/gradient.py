"""The gradient of a Python function by several of its arguments, taken with autograd's tracer.

``autograd.make_vjp`` takes several arguments as one tuple, whose container costs a
zero-filled copy of every argument for each argument: on a 784 x 256 kernel that is
a third of the time of both passes. Here each argument is a root of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from autograd.core import VJPNode, add_outgrads
from autograd.tracer import getval, isbox, new_box, toposort, trace_stack

from ipusim.model.functions.traced_array import refusing_plain_numpy

#: From the gradient of the result to the gradient of each wanted argument, in their order.
Pullback = Callable[[Any], list[Any]]


class Sums:
    """Gradients on their way back through a trace, added up by the node of what they are the gradients of."""

    def __init__(self) -> None:
        """Begin without gradients."""
        self._of: dict[VJPNode, tuple[Any, bool]] = {}

    def __contains__(self, node: VJPNode) -> bool:
        """Whether ``node`` has a gradient."""
        return node in self._of

    def add(self, node: VJPNode, part: Any) -> None:
        """Add a gradient of ``node``."""
        self._of[node] = add_outgrads(self._of.get(node), part)

    def take(self, node: VJPNode) -> Any:
        """Return and remove the sum of a node's gradients, when all have come."""
        return self._of.pop(node)[0]

    def walk(self, ends: list[VJPNode]) -> None:
        """Walk back from ``ends``, which have their gradients, to the roots of the trace, which keep theirs."""
        for node in list(toposort(_Ends(ends)))[1:]:
            if node.parents:
                for parent, part in zip(node.parents, node.vjp(self.take(node)), strict=True):
                    self.add(parent, part)


class _Ends:
    """The nodes of several results as one node, from which the walk back begins."""

    def __init__(self, parents: list[VJPNode]) -> None:
        self.parents = parents


def pullback(function: Callable[..., Any], arrays: Sequence[Any], argnums: Sequence[int]) -> tuple[Pullback, Any]:
    """Evaluate ``function(*arrays)``; return a function of its gradient to those of ``argnums``, and the result.

    ``function`` is written with ``autograd.numpy``. An argument that the result does
    not depend on has a gradient of zeros. Returned gradients may share memory with
    each other and with the gradient that came in. Raises UntraceableError for plain
    NumPy on what depends on a wanted argument.
    """
    roots, (result,), (depends,) = _traced(lambda *arguments: (function(*arguments),), arrays, argnums)
    end, value = (result._node, result._value) if depends else (None, result)

    def pull(grad: Any) -> list[Any]:
        sums = Sums()
        if end is not None:
            sums.add(end, grad)
            sums.walk([end])
        return [
            sums.take(root) if root in sums else np.zeros_like(getval(arrays[index])) for index, root in roots.items()
        ]

    return pull, value


def pullback_of_several(
    function: Callable[..., Sequence[Any]],
    arrays: Sequence[Any],
    argnums: Sequence[int],
    node: type[VJPNode] = VJPNode,
    sums: type[Sums] = Sums,
) -> tuple[Pullback, tuple[Any, ...]]:
    """Do as :func:`pullback` for a function of several results.

    What is returned takes a gradient for each result, or None for one that nothing depends on.
    It keeps none of the arguments alive that no gradient needs. ``node`` is made for each call, and ``sums`` add
    gradients up.
    """
    roots, results, traced = _traced(function, arrays, argnums, node)
    ends = [result._node if is_traced else None for result, is_traced in zip(results, traced, strict=True)]
    values = tuple(result._value if is_traced else result for result, is_traced in zip(results, traced, strict=True))
    forms = [(np.shape(getval(arrays[index])), getval(arrays[index]).dtype) for index in roots]

    def pull(grads: Any) -> list[Any]:
        total = sums()
        for end, grad in zip(ends, grads, strict=True):
            if end is not None and grad is not None:
                total.add(end, grad)
        total.walk([end for end in dict.fromkeys(ends) if end is not None and end in total])
        return [
            total.take(root) if root in total else np.zeros(shape, dtype)
            for root, (shape, dtype) in zip(roots.values(), forms, strict=True)
        ]

    return pull, values


def dependent(
    function: Callable[..., Sequence[Any]], arrays: Sequence[Any], argnums: Sequence[int]
) -> tuple[bool, ...]:
    """Return for each result of ``function(*arrays)`` whether it depends on any of the arguments ``argnums``."""
    return tuple(_traced(function, arrays, argnums)[2])


def _traced(
    function: Callable[..., Sequence[Any]],
    arrays: Sequence[Any],
    argnums: Sequence[int],
    node: type[VJPNode] = VJPNode,
) -> tuple[dict[int, Any], Sequence[Any], list[bool]]:
    """Evaluate under a trace; return the roots by argument, the results, and which results depend on a root."""
    roots = {index: node.new_root() for index in argnums}
    with refusing_plain_numpy(), trace_stack.new_trace() as trace:
        results = function(*(new_box(a, trace, roots[i]) if i in roots else a for i, a in enumerate(arrays)))
    return roots, results, [isbox(result) and result._trace == trace for result in results]
