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


def pullback(function: Callable[..., Any], arrays: Sequence[Any], argnums: Sequence[int]) -> tuple[Pullback, Any]:
    """Evaluate ``function(*arrays)``; return a function of its gradient to those of ``argnums``, and the result.

    ``function`` is written with ``autograd.numpy``. An argument that the result does
    not depend on has a gradient of zeros. Returned gradients may share memory with
    each other and with the gradient that came in. Raises UntraceableError for plain
    NumPy on what depends on a wanted argument.
    """
    roots = {index: VJPNode.new_root() for index in argnums}
    with refusing_plain_numpy(), trace_stack.new_trace() as trace:
        result = function(*(new_box(a, trace, roots[i]) if i in roots else a for i, a in enumerate(arrays)))
    depends = isbox(result) and result._trace == trace
    end, value = (result._node, result._value) if depends else (None, result)

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
