"""Copies between an IPU and its host, counted in a function whose operations run on both.

An array lies where the operation that makes it runs. It crosses once, when the other side first needs it, and is on
both then, in the backward pass as well: so a scope is one way to the host and back in each pass. The gradient of an
operation runs where that ran; those of one array are added up on either side by themselves, and then where it lies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from autograd.core import VJPNode, add_outgrads
from autograd.tracer import isbox, notrace_primitives

from ipusim.model.functions.gradient import Sums
from ipusim.model.functions.surrounded import HostScope, Surrounded, surroundings
from ipusim.model.functions.untrained import Untrained
from ipusim.model.host_call import HostCall
from ipusim.model.layers.layer import Array
from ipusim.model.layers.saved_arrays import root_of
from ipusim.model.work import Work


class Counting(Protocol):
    """A count of the work of operations."""

    def works(self, itemsize: int) -> tuple[Work, ...]:
        """Return the works, of elements of ``itemsize`` bytes where they state none."""


T = TypeVar("T", bound=Counting)


@dataclass(eq=False)
class Placement:
    """Where an array lies.

    Attributes:
        made: the scope that it is made in; None on the IPU.
        size: its bytes.
        on_both: whether it has crossed.
    """

    made: HostScope | None
    size: int
    on_both: bool = False


@dataclass(eq=False)
class _Call(Generic[T]):
    """The work and copies of a scope in the pass that is counted."""

    tally: T
    sent: int = 0
    returned: int = 0


class Placements(Generic[T]):
    """Placement of the work of one counted pass: each scope with its operations."""

    def __init__(self, tally: Callable[[], T], plain: Iterable[Array] = (), widest: int = 8) -> None:
        """Begin a forward pass; ``tally`` makes what counts the host's work.

        ``plain`` are arrays on the IPU that the trace does not follow, such as whole numbers. Of floating-point
        numbers ``widest`` are the most bytes: NumPy makes wider ones of what has no width, such as an index.
        """
        self._tally, self._widest = tally, widest
        self._calls: dict[HostScope, _Call[T]] = {}
        self._plain = {id(root_of(array)): (array, Placement(None, array.nbytes)) for array in plain}

    def tally_of(self, where: HostScope) -> T:
        """Return the tally of a scope."""
        return self._call(where).tally

    def made(self, value: Any, args: Sequence[Any], taken: Iterable[Placement]) -> Placement:
        """Note an operation that takes arrays that have been ``taken`` or are among its ``args``.

        Returns where its result lies.
        """
        here = surroundings().scope
        for placement in taken:
            self.use(placement, here)
        self.use_plain(args)
        return Placement(here, self._bytes_of(value, args))

    def use(self, array: Placement, where: HostScope | None) -> None:
        """Count a copy of an array to the side that uses it, unless it is there."""
        if array.on_both or (array.made is None) is (where is None):
            return
        array.on_both = True
        if where is not None:
            self._call(where).sent += array.size
        elif array.made is not None:
            self._call(array.made).returned += array.size

    def use_plain(self, arrays: Iterable[Any]) -> None:
        """Do so for arrays among ``arrays`` that the trace does not follow."""
        here = surroundings().scope
        if here is None or not self._plain:
            return
        for array in arrays:
            if isinstance(array, tuple | list):  # of indices
                self.use_plain(array)
            elif isinstance(array, np.ndarray) and id(root_of(array)) in self._plain:
                self.use(self._plain[id(root_of(array))][1], here)

    def turn(self, itemsize: int) -> tuple[HostCall, ...]:
        """End a pass; return the work of each scope in order."""
        calls, self._calls = self._calls, {}
        work = (
            HostCall(where.name, call.tally.works(itemsize), call.sent, call.returned) for where, call in calls.items()
        )
        return tuple(call for call in work if call.work or call.sent_bytes or call.returned_bytes)

    def _bytes_of(self, value: Any, args: Sequence[Any] = ()) -> int:
        """Return the bytes of what an operation on ``args`` gives."""
        match value:
            case np.ndarray() | np.generic():
                narrow = value.dtype.kind == "f" and value.itemsize > self._widest
                return value.size * self._widest if narrow else value.nbytes
            case tuple() | list():
                return sum(map(self._bytes_of, value))
            case dict():
                return sum(map(self._bytes_of, value.values()))
            case float() | int():
                return self._widest
        return self._bytes_of(args[0]) if len(args) else 0  # the gradient of a part, which holds that alone

    def _call(self, where: HostScope) -> _Call[T]:
        if where not in self._calls:
            self._calls[where] = _Call(self._tally())
        return self._calls[where]


class _GradientOutside:
    """The gradient of an operation of a scope. What it keeps lies on the host, where ``saved_arrays`` does not look."""

    def __init__(self, where: HostScope, vjp: Callable[[Any], Iterable[Any]]) -> None:
        self.scope, self._vjp = where, vjp

    def __call__(self, gradient: Any) -> tuple[Any, ...]:
        with Surrounded(scope=self.scope):
            return tuple(self._vjp(gradient))


class CountedUntrained(Untrained):
    """Untrained variables, which lie on the IPU: what is read on the host goes there, what is written comes back."""

    def __init__(self, values: Mapping[str, Array], placements: Placements[Any]) -> None:
        """Begin with ``values``, which are among the plain arrays of ``placements``."""
        super().__init__(dict(values))
        self._placements = placements

    def read(self, name: str, initial: Array) -> Array:
        """Return a value, copied to the host if it is read there; raises as :meth:`Untrained.read`."""
        value = super().read(name, initial)
        self._placements.use_plain([value])
        return value

    def write(self, name: str, value: Any) -> None:
        """Replace a value, copied from the host if it is written there; raises as :meth:`Untrained.write`."""
        box = value
        while isbox(box):
            if (placement := getattr(box._node, "placement", None)) is not None:
                self._placements.use(placement, None)
            box = box._value
        super().write(name, value)


class PlacedNode(VJPNode):  # type: ignore[misc]
    """A call in a trace for gradients, whose gradient runs where it has run."""

    __slots__ = ("parents", "vjp")  # as VJPNode's, for saved_arrays looks at a class's own
    vjp: Any

    def __init__(self, *call: Any) -> None:
        """Note a call; autograd makes one node for each."""
        super().__init__(*call)
        here = surroundings().scope
        if here is not None:
            self.vjp = _GradientOutside(here, self.vjp)


# The same set: what is registered for the one later on holds for the other.
notrace_primitives[PlacedNode] = notrace_primitives[VJPNode]


class PlacedSums(Sums):
    """Gradients that are added up on each side apart; the two sums then where their array lies."""

    def __init__(self) -> None:
        """Begin with none."""
        super().__init__()
        self._outside: dict[VJPNode, tuple[Any, bool]] = {}

    def __contains__(self, node: VJPNode) -> bool:
        """Whether any has come to ``node``."""
        return super().__contains__(node) or node in self._outside

    def add(self, node: VJPNode, part: Any) -> None:
        """Add a gradient on the side where it lies."""
        where = _made(part)
        if where is None:
            super().add(node, part)
            return
        with Surrounded(scope=where):
            self._outside[node] = add_outgrads(self._outside.get(node), part)

    def take(self, node: VJPNode) -> Any:
        """Return and remove the sum of the gradients from both sides."""
        if node not in self._outside:
            return super().take(node)
        outside = self._outside.pop(node)[0]
        if not super().__contains__(node):
            return outside
        with Surrounded(scope=node.vjp.scope if isinstance(node.vjp, _GradientOutside) else None):
            super().add(node, outside)
        return super().take(node)


def _made(gradient: Any) -> HostScope | None:
    """Return the scope that a gradient lies in; None on the IPU."""
    placement: Placement | None = gradient._node.placement if isbox(gradient) else None
    return None if placement is None else placement.made
