"""Compute the gradient of a Python function by several arguments, with autograd's tracer.

``autograd.make_vjp`` takes several arguments as a tuple. For the gradient of each argument, autograd's tuple makes
zero-filled copies of all arguments; on a 784 x 256 kernel the copies take a third of the time of both passes. This
module starts the trace (autograd's graph of calls) from a separate root for each argument instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from autograd.core import VJPNode, add_outgrads
from autograd.tracer import getval, isbox, new_box, toposort, trace_stack

from ipusim.model.functions.traced_array import refusing_plain_numpy

#: Function from the result's gradient to the gradients of the wanted arguments, in order.
Pullback = Callable[[Any], list[Any]]


def pullback(function: Callable[..., Any], arrays: Sequence[Any], argnums: Sequence[int]) -> tuple[Pullback, Any]:
    """Evaluate ``function(*arrays)``; return the pullback to the arguments ``argnums``, and the result.

    ``function`` is written with ``autograd.numpy``. An argument without influence on the result has a gradient of
    zeros. Returned gradients may share memory with each other and with the incoming gradient. Raises UntraceableError
    for plain NumPy on values that depend on a wanted argument.
    """
    roots = {index: VJPNode.new_root() for index in argnums}
    with refusing_plain_numpy(), trace_stack.new_trace() as trace:
        result = function(*(new_box(a, trace, roots[i]) if i in roots else a for i, a in enumerate(arrays)))
    is_traced = isbox(result) and result._trace == trace
    end, value = (result._node, result._value) if is_traced else (None, result)

    def pull(grad: Any) -> list[Any]:
        sums: dict[VJPNode, tuple[Any, bool]] = {}
        if end is not None:
            sums[end] = add_outgrads(None, grad)
            for node in toposort(end):
                if node.parents:
                    for parent, part in zip(node.parents, node.vjp(sums.pop(node)[0]), strict=True):
                        sums[parent] = add_outgrads(sums.get(parent), part)
        return [
            sums[root][0] if root in sums else np.zeros_like(getval(arrays[index])) for index, root in roots.items()
        ]

    return pull, value
