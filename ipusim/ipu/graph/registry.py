"""Register kernels: NumPy functions that run the nodes of a traced graph, by operation type.

Graphcore's operations are ``PyFunc`` nodes in the graph. All have that type; a token, a unique text among the
attributes of the node, tells one from another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Final, TypeVar
from weakref import finalize

from ipusim.api import Work
from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu.graph.node import Node

T = TypeVar("T")

#: Computes a node: takes input values; returns one result, a tuple of results, or None.
Kernel = Callable[..., Any]
#: Reads a node's attributes and returns a kernel.
Maker = Callable[[Node], Kernel]
#: Takes the input values of a node and the indices of the results that are read; returns the node's work.
Price = Callable[[Sequence[Any], Collection[int]], Work]


@dataclass(frozen=True)
class Entry:
    """Registry entry of an operation type, or of a single node for one of Graphcore's operations.

    Attributes:
        maker: makes a node's kernel.
        effect: whether a node runs even if no node reads the results.
        draws: whether the kernel takes a ``numpy.random.Generator`` before the inputs.
        invoked: whether the kernel takes the invocation, the context of a run, before the inputs.
        price: function for the work of one of Graphcore's operations, or None for free operations.
        value: object of one of Graphcore's operations, such as the queue of a dequeue.
    """

    maker: Maker
    effect: bool = False
    draws: bool = False
    invoked: bool = False
    price: Price | None = None
    value: Any = None


#: Node types of Python functions: functions of the program, and ``PyFunc`` also for Graphcore's operations.
PYTHON_FUNCTION_TYPES: Final = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
_ENTRIES: dict[str, Entry] = {}
#: Entries of Graphcore's operations by token.
_BY_TOKEN: dict[str, Entry] = {}
_TOKEN_NUMBERS: Final = count()


def register(types: str, *, effect: bool = False, draws: bool = False) -> Callable[[Maker], Maker]:
    """Return a decorator that registers a kernel maker for operation types.

    Args:
        types: operation types, separated by spaces.
        effect: whether nodes run even if no node reads the results, like assignments.
        draws: whether the kernel takes a ``numpy.random.Generator`` before the inputs.

    Raises:
        ValueError: if a type already has a kernel.
    """

    def keep(maker: Maker) -> Maker:
        for name in types.split():
            if name in _ENTRIES:
                raise ValueError(f"{name}: expected one kernel for an operation type, got a second")
            _ENTRIES[name] = Entry(maker, effect, draws)
        return maker

    return keep


def kernel(types: str, *attributes: str, effect: bool = False, draws: bool = False) -> Callable[[Kernel], Kernel]:
    """Return a decorator that registers a function of a node's attributes and arrays for operation types.

    Args:
        types: operation types, separated by spaces.
        attributes: names of attributes; the function takes their values before the inputs.
        effect: see :func:`register`.
        draws: see :func:`register`; the generator stands between the attributes and the inputs.
    """

    def keep(function: Kernel) -> Kernel:
        def maker(node: Node) -> Kernel:
            return partial(function, *(node.attributes[name] for name in attributes)) if attributes else function

        register(types, effect=effect, draws=draws)(maker)
        return function

    return keep


def register_token(entry: Entry, owner: Any) -> str:
    """Register one of Graphcore's operations until the owner, for example a graph, is deleted.

    Returns:
        Token for the node's attributes.
    """
    token = f"ipusim:{next(_TOKEN_NUMBERS)}"
    _BY_TOKEN[token] = entry
    finalize(owner, _BY_TOKEN.pop, token, None)
    return token


def entry_of(node: Node) -> Entry | None:
    """Return the registry entry of a node's operation, or None for operations without a kernel."""
    if node.type == "PyFunc":
        return _BY_TOKEN.get(node.attributes.get("token", "")) or _ENTRIES.get(node.type)
    return _ENTRIES.get(node.type)


def value_of(node: Node, kind: type[T]) -> T | None:
    """Return the object of Graphcore's operation at a node, if of this kind; None for other nodes."""
    entry = entry_of(node)
    return entry.value if entry is not None and isinstance(entry.value, kind) else None


def is_program_function(node: Node) -> bool:
    """Tell whether a node is a Python function of the program."""
    return node.type in PYTHON_FUNCTION_TYPES and node.attributes.get("token", "") not in _BY_TOKEN


def find(node: Node) -> Entry:
    """Return the registry entry of a node's operation.

    Raises:
        UnsupportedProgramError: if the operation has no kernel.
    """
    entry = entry_of(node)
    if entry is None:
        raise UnsupportedProgramError(f"node {node.name!r}: operation {node.type} is not simulated")
    return entry


def registered() -> tuple[str, ...]:
    """Return all registered operation types, sorted."""
    return tuple(sorted(_ENTRIES))
