"""Counts the work of a Python function of arrays, and of its gradient, by tracing both with autograd.

The function runs under a trace of its own, whose nodes note what each NumPy call
does (:mod:`ipusim.model.functions.counted_calls`). Its gradient runs inside the same trace, so the calls of the
backward pass are counted by the same rules.

A product begins a step of its own, unless it shares an operand with the one before (as those of a
layer's two gradients do, or of queries, keys and values). A layer of
this package is a step that costs what the layer says (:mod:`ipusim.model.functions.layer_call`), and so is an
operation of several arrays (:mod:`ipusim.model.functions.operation_call`), whatever it is called with.
Comparisons and other functions without a gradient, and calls on constants alone,
are not seen and cost nothing; but in a scope the arrays that such functions take go to the host.

What a scope has the host do (:mod:`ipusim.model.functions.host_scope`) is the host's work and no step of the IPU's;
arrays cross between the two as :mod:`ipusim.model.functions.placement` says.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from autograd.core import VJPNode
from autograd.extend import primitive
from autograd.tracer import Node, getval, isbox, new_box, notrace_primitives, register_notrace, trace_stack

from ipusim.base.errors import ModelError
from ipusim.model.functions.counted_calls import OF_THE_FORM, REFUSED, VIEWS, Step, counted_call
from ipusim.model.functions.gradient import pullback, pullback_of_several
from ipusim.model.functions.layer_call import Call
from ipusim.model.functions.operation_call import OperationCall
from ipusim.model.functions.placement import CountedUntrained, PlacedNode, PlacedSums, Placement, Placements
from ipusim.model.functions.surrounded import Surrounded, surroundings
from ipusim.model.functions.traced_array import refusing_plain_numpy
from ipusim.model.host_call import HostCall
from ipusim.model.layers.layer import Array, View
from ipusim.model.layers.saved_arrays import root_of
from ipusim.model.work import Work


class Tally:
    """Running counts, step by step.

    Attributes:
        steps: what was counted; the work of a layer of this package is a step by itself.
        touched_bytes: operands and result of the call where they are largest, weights left out.
        layer_weight_bytes: parameters of the layer where they are largest.
        placements: where each array lies, on the IPU or the host, and what crosses between them.
    """

    def __init__(self, weights: Iterable[Array] = (), plain: Iterable[Array] = (), widest: int = 8) -> None:
        """Start at zero; ``weights`` lie on the tiles already when a forward pass uses them.

        ``plain`` are arrays there that the trace does not follow, ``widest`` the bytes of the widest element.
        """
        self.steps: list[Step | Work] = []
        self.touched_bytes = 0
        self.layer_weight_bytes = 0
        self.placements = Placements(self._of_host, plain, widest)
        self._weights = {id(root_of(array)): array for array in weights}
        self._forward = True
        #: Operands of the products of the step that is open; held, so that no other array takes their place.
        self._operands: dict[int, Array] | None = None

    def total(self) -> Step:
        """Return all steps but those of layers and operations as one."""
        total = Step()
        for step in self.steps:
            if isinstance(step, Step):
                total.add(step)
        return total

    def works(self, itemsize: int) -> tuple[Work, ...]:
        """Return the work of each step."""
        return tuple(step if isinstance(step, Work) else step.work(itemsize) for step in self.steps)

    def turn(self, itemsize: int) -> tuple[Work, ...]:
        """End the forward pass: return the work of its steps, and count those of the backward pass."""
        works, self.steps = self.works(itemsize), []
        self._forward, self._operands = False, None
        return works

    def _of_host(self) -> Tally:
        """Return the tally of a scope on the host in the same pass."""
        tally = Tally()
        tally._forward = self._forward
        return tally

    @property
    def here(self) -> Tally:
        """The tally of where operations run now: itself on the IPU, and the host's in a scope."""
        where = surroundings().scope
        return self if where is None else self.placements.tally_of(where)

    def note_done(self, work: Work, read: Sequence[Any], written: Sequence[Any]) -> None:
        """Add a pass of an operation, its reads and its writes to the current scope."""
        self.placements.use_plain(read)
        self.here.note_operation(work, read, written)

    def note(self, name: str, value: Any, args: Sequence[Any]) -> None:
        """Add one call of the NumPy function ``name``."""
        if name in REFUSED:
            raise ModelError(f"the work of {name!r} cannot be counted: give the layer's cost")
        if name in VIEWS or (isinstance(value, tuple) and not isinstance(args[0], Call)):
            return  # sums of what an operation's results leave empty are autograd's own
        if args and isinstance(args[0], OperationCall):
            return
        if args and isinstance(args[0], Call):
            self._note_layer(args[0], value, args[1:])
            return
        counted = counted_call(name, value, args)
        arrays = [arg for arg in args if isinstance(arg, np.ndarray)]
        if counted.products:
            self._begin(arrays)
        if not self.steps or isinstance(self.steps[-1], Work):
            self.steps.append(Step())
        step = self.steps[-1]
        assert isinstance(step, Step)
        step.add(counted)
        read = sum(array.nbytes for array in arrays if id(root_of(array)) not in self._weights)
        self.touched_bytes = max(self.touched_bytes, read + np.asarray(value).nbytes)

    def _note_layer(self, call: Call, value: Any, args: Sequence[Any]) -> None:
        """Add a pass of a layer: forward its input and parameters, backward whether the input's gradient is needed."""
        self._operands = None
        if not self._forward:
            self.steps.append(call.cost(args[0]).backward)
            return
        self.steps.append(call.cost().forward)
        x, parameters = args[0], args[1 + call.is_loss :]
        left = 0 if call.is_loss else value.nbytes
        moves = not isinstance(call.layer, View)
        self.touched_bytes = max(self.touched_bytes, (x.nbytes + left) * moves)
        self.layer_weight_bytes = max(self.layer_weight_bytes, sum(array.nbytes for array in parameters))

    def note_operation(self, work: Work, read: Sequence[Any], written: Sequence[Any]) -> None:
        """Add a pass of an operation, and what it reads and writes."""
        if work.is_nothing:
            return
        self._operands = None
        self.steps.append(work)
        arrays = [np.asarray(array) for array in read]
        weights = [array.nbytes for array in arrays if id(root_of(array)) in self._weights]
        moved = (
            sum(array.nbytes for array in arrays) - sum(weights) + sum(np.asarray(array).nbytes for array in written)
        )
        self.touched_bytes = max(self.touched_bytes, moved)
        self.layer_weight_bytes = max(self.layer_weight_bytes, sum(weights))

    def _begin(self, operands: Sequence[Array]) -> None:
        """Begin a step for a product, unless it shares an operand with those of the step that is open."""
        roots = {id(root_of(array)): array for array in operands}
        activations = roots.keys() - self._weights.keys()
        if self._operands is None or not activations & self._operands.keys():
            self.steps.append(Step())
            self._operands = {}
        self._operands |= roots


class CountingNode(Node):  # type: ignore[misc]
    """A call in the trace that notes itself in the tally of the trace's roots."""

    __slots__ = ("placement", "tally")

    def __init__(self, value: Any, fun: Any, args: Any, _kwargs: Any, _argnums: Any, parents: Any) -> None:
        """Note the call; autograd makes one node for each."""
        self.tally = tally = parents[0].tally
        self.placement = tally.placements.made(value, args, [parent.placement for parent in parents])
        tally.here.note(fun.__name__, value, args)

    def initialize_root(self, tally: Tally, size: int) -> None:
        """Start a trace that counts into ``tally``, with an array of ``size`` bytes on the IPU."""
        self.tally, self.placement = tally, Placement(None, size)


class _Unseen(set[Any]):
    """Functions that autograd does not differentiate: plain arrays and numbers come of them here too.

    autograd asks for them before it calls them. What they look at is there then, on the IPU or the host.
    """

    def __contains__(self, function: object) -> bool:
        """Whether a function is one; counts the copies of its arguments."""
        if not super().__contains__(function):
            return False
        if getattr(function, "__name__", "") not in OF_THE_FORM:
            for _, box in sys._getframe(1).f_locals["boxed_args"]:
                box._node.tally.placements.use(box._node.placement, surroundings().scope)
        return True


notrace_primitives[CountingNode] = _Unseen(notrace_primitives[VJPNode])


def unseen(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function through which no gradient goes back, and that costs nothing."""
    without_gradient: Callable[..., Any] = primitive(function)
    for node in (VJPNode, CountingNode):
        register_notrace(node, without_gradient)
    return without_gradient


def count_passes(
    function: Callable[..., Any], arrays: Sequence[Array], argnums: Sequence[int]
) -> tuple[Step, Step, Array]:
    """Return the counts of ``function(*arrays)``, of its gradient by the arguments ``argnums``, and its result.

    ``function`` is written with ``autograd.numpy``. Raises ModelError when it calls
    what cannot be counted.
    """
    tally = Tally()
    with refusing_plain_numpy(), Surrounded(counter=tally.note_done, scope=None), trace_stack.new_trace() as trace:
        boxes = [new_box(array, trace, CountingNode.new_root(tally, 0)) for array in arrays]
        pull, result = pullback(function, boxes, argnums)
        forward, tally.steps = tally.total(), []
        y = np.asarray(getval(result))
        pull(new_box(np.ones_like(y), trace, CountingNode.new_root(tally, 0)))
    return forward, tally.total(), y


@dataclass(frozen=True)
class Counted:
    """The work of both passes of a function, superstep by superstep, and what it touches (see :class:`Tally`).

    ``forward_host_calls`` and ``backward_host_calls`` are what the host does in the middle of them.
    """

    forward: tuple[Work, ...]
    backward: tuple[Work, ...]
    touched_bytes: int
    layer_weight_bytes: int
    forward_host_calls: tuple[HostCall, ...] = ()
    backward_host_calls: tuple[HostCall, ...] = ()

    def without_backward(self) -> Counted:
        """Return the counts of a function without a backward pass."""
        return replace(self, backward=(), backward_host_calls=())


def count_several(
    function: Callable[..., Sequence[Any]],
    arrays: Sequence[Array],
    argnums: Sequence[int],
    pulled: Sequence[int],
    *,
    weights: Sequence[Array],
    itemsize: int,
) -> Counted:
    """Do as :func:`count_passes` for a function of several results, which may have the host do something.

    ``pulled`` are the places of the results whose gradients come back, ``weights`` those of
    ``arrays`` that lie on the tiles, ``itemsize`` the bytes of an element. Arrays that are not
    floating-point are passed on as they are, and calls on them alone are not counted. All results and
    gradients end on the IPU.
    """
    now = surroundings().untrained
    values = {} if now is None else now.values
    tally = Tally(weights, [*values.values(), *(array for array in arrays if array.dtype.kind != "f")], itemsize)
    untrained = None if now is None else CountedUntrained(values, tally.placements)

    def on_ipu(results: Iterable[Any]) -> None:
        for result in results:
            if isbox(result):
                tally.placements.use(result._node.placement, None)

    around = Surrounded(counter=tally.note_done, untrained=untrained)
    with refusing_plain_numpy(), around, trace_stack.new_trace() as trace:

        def counted(array: Any) -> Any:
            new = CountingNode.new_root(tally, array.size * min(array.itemsize, itemsize))
            return new_box(array, trace, new) if array.dtype.kind == "f" else array

        boxes = [counted(array) for array in arrays]
        pull, results = pullback_of_several(function, boxes, argnums, PlacedNode, PlacedSums)
        on_ipu(results)
        there, touched, outside = tally.turn(itemsize), tally.touched_bytes, tally.placements.turn(itemsize)
        ones = [np.ones_like(np.asarray(getval(result))) for result in results]
        on_ipu(pull([counted(one) if index in pulled else None for index, one in enumerate(ones)]))
    back = tally.works(itemsize), touched, tally.layer_weight_bytes
    return Counted(there, *back, outside, tally.placements.turn(itemsize))
