"""Count the work of a Python function and its gradient by tracing both.

A trace is autograd's graph of NumPy calls. The function runs under a separate trace, whose nodes add the work of their
calls to a tally, by the rules of :mod:`ipusim.model.functions.counted_calls`. The gradient runs inside the same trace,
so the same rules count the calls of the backward pass.

Comparisons and other functions without gradient, and calls on constants, are invisible and therefore free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from autograd.core import VJPNode
from autograd.tracer import Node, getval, new_box, notrace_primitives, trace_stack

from ipusim.base.errors import ModelError
from ipusim.model.functions.counted_calls import REFUSED_NAMES, VIEWS, Step, counted_call
from ipusim.model.functions.gradient import pullback
from ipusim.model.functions.traced_array import refusing_plain_numpy
from ipusim.model.layers.layer import Array


class Tally:
    """Work of the calls of a pass.

    Attributes:
        step: work so far.
    """

    def __init__(self) -> None:
        """Start at zero."""
        self.step = Step()

    def note(self, name: str, value: Any, args: Sequence[Any]) -> None:
        """Add a call of the NumPy function ``name``; raises ModelError for a function without a counting rule."""
        if name in REFUSED_NAMES:
            raise ModelError(f"the work of {name!r} cannot be counted: give the layer's cost")
        if name not in VIEWS and not isinstance(value, tuple):
            self.step.add(counted_call(name, value, args))


class CountingNode(Node):  # type: ignore[misc]
    """A call in the trace, which adds its work to the tally given to the trace's roots."""

    __slots__ = ("tally",)

    def __init__(self, value: Any, fun: Any, args: Any, _kwargs: Any, _argnums: Any, parents: Any) -> None:
        """Record the call; autograd creates a node per call."""
        self.tally = tally = parents[0].tally
        tally.note(fun.__name__, value, args)

    def initialize_root(self, tally: Tally) -> None:
        """Start a trace that counts into ``tally``."""
        self.tally = tally


#: Functions without derivative in autograd, left uncounted.
notrace_primitives[CountingNode] = set(notrace_primitives[VJPNode])


def count_passes(function: Callable[..., Any], arrays: Sequence[Array], argnums: Sequence[int]) -> tuple[Step, Step]:
    """Return the counts of ``function(*arrays)``, and of the gradient by the arguments ``argnums``.

    ``function`` is written with ``autograd.numpy``. Raises ModelError for a call without a counting rule.
    """
    tally = Tally()
    with refusing_plain_numpy(), trace_stack.new_trace() as trace:
        boxes = [new_box(array, trace, CountingNode.new_root(tally)) for array in arrays]
        pull, result = pullback(function, boxes, argnums)
        forward, tally.step = tally.step, Step()
        pull(new_box(np.ones_like(getval(result)), trace, CountingNode.new_root(tally)))
    return forward, tally.step
