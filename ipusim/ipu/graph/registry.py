"""Kernels by operation type: how each node of a graph is computed with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ipusim.api import Work
from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu.graph.node import Node

#: Computes a node: takes the values of the inputs, returns a single value, a tuple of values, or None.
Kernel = Callable[..., Any]
#: Reads the attributes of a node and returns its kernel.
Maker = Callable[[Node], Kernel]
#: Takes the values of a node's inputs and the numbers of its results that are read; returns the node's work.
Price = Callable[[Sequence[Any], Collection[int]], Work]


@dataclass(frozen=True)
class Entry:
    """A registered operation type.

    Attributes:
        maker: makes the kernel of a node.
        effect: whether a node runs although nothing reads its results.
        draws: whether the kernel takes a ``numpy.random.Generator`` before its inputs.
        invoked: whether the kernel takes the invocation of its part before its inputs.
        price: price of an operation of Graphcore's; None for an operation that costs nothing.
        value: object behind an operation of Graphcore's, such as a queue.
    """

    maker: Maker
    effect: bool = False
    draws: bool = False
    invoked: bool = False
    price: Price | None = None
    value: Any = None


#: Types of nodes of Python functions: the program's own, and operations of Graphcore's.
USERS: Final = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
_ENTRIES: dict[str, Entry] = {}
#: Graphcore's operations by the token of their ``PyFunc`` node.
_BY_TOKEN: dict[str, Entry] = {}


def register(types: str, *, effect: bool = False, draws: bool = False) -> Callable[[Maker], Maker]:
    """Return a decorator that registers a maker for operation types.

    Args:
        types: operation types, separated by spaces.
        effect: whether nodes such as assignments run without a reader of their results.
        draws: whether the kernel takes a ``numpy.random.Generator`` before its inputs.

    Raises:
        ValueError: for a type that has a kernel already.
    """

    def keep(maker: Maker) -> Maker:
        for name in types.split():
            if name in _ENTRIES:
                raise ValueError(f"{name}: expected one kernel for an operation type, got a second")
            _ENTRIES[name] = Entry(maker, effect, draws)
        return maker

    return keep


def register_function(types: str, function: Kernel, *, effect: bool = False) -> None:
    """Register a function of arrays for operation types whose attributes do not matter.

    Args:
        types: operation types, separated by spaces.
        function: the kernel of every node of these types.
        effect: as of :func:`register`.
    """
    register(types, effect=effect)(lambda node: function)


def register_token(token: str, entry: Entry) -> None:
    """Register one of Graphcore's operations, whose node is a ``PyFunc`` with a token.

    Args:
        token: unique text.
        entry: the operation.
    """
    _BY_TOKEN[token] = entry


def forget_token(token: str) -> None:
    """Forget an operation whose graph is gone."""
    _BY_TOKEN.pop(token, None)


def entry_of(node: Node) -> Entry | None:
    """Return the entry of a node's operation; None without a kernel."""
    if node.type == "PyFunc":
        return _BY_TOKEN.get(node.attributes.get("token", "")) or _ENTRIES.get(node.type)
    return _ENTRIES.get(node.type)


def is_users(node: Node) -> bool:
    """Tell whether a node is a Python function of the program's own."""
    return node.type in USERS and node.attributes.get("token", "") not in _BY_TOKEN


def find(node: Node) -> Entry:
    """Return the entry of a node's operation.

    Raises:
        UnsupportedProgramError: for an operation without a kernel.
    """
    entry = entry_of(node)
    if entry is None:
        raise UnsupportedProgramError(f"node {node.name!r}: operation {node.type} is not simulated")
    return entry


def registered() -> tuple[str, ...]:
    """Return all operation types with a kernel, sorted."""
    return tuple(sorted(_ENTRIES))
