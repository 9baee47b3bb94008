"""Graphs, as TensorFlow 1 has them: with their own variables and compiled programs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from ipusim.ipu import ipu_compiler, variable_store
from ipusim.ipu.host import Fetch
from ipusim.ipu.names import Counts, counting_outside
from ipusim.ipu.variable import NamedVariable
from ipusim.ipu.variable_store import VariableStore
from ipusim.model.functions.variables import looking_up_outside
from ipusim.model.layers.layer import Array


class Graph:
    """Variables by name, and the programs that were compiled where it was the default graph."""

    def __init__(self) -> None:
        """Begin without any."""
        self._variables = VariableStore()
        self._programs: tuple[Fetch, ...] = ()
        self._names = Counts()

    @property
    def name(self) -> str:
        """``keras_scratch_graph`` while Keras tries layers for the shapes that they give, else ``graph``."""
        from ipusim.ipu.tensorflow.keras.weight import is_trying  # noqa: PLC0415 - Keras takes a while to import

        return "keras_scratch_graph" if is_trying() else "graph"

    @contextmanager
    def as_default(self) -> Iterator[Graph]:
        """Make variables, and compile, in this graph inside the block.

        Layers are also computed there outside of programs, on the host, as for the shape and dtype of their results.
        """
        if get_default_graph() is self:
            yield self
            return
        variables, programs = variable_store.store(), ipu_compiler.compiled()
        token = _DEFAULT.set(self)
        variable_store.restore(self._variables)
        ipu_compiler.restore(self._programs)
        try:
            with looking_up_outside(_made), counting_outside(self._names):
                yield self
        finally:
            self._variables, self._programs = variable_store.store(), ipu_compiler.compiled()
            variable_store.restore(variables)
            ipu_compiler.restore(programs)
            _DEFAULT.reset(token)

    def finalize(self) -> None:
        """Do nothing."""


def _made(name: str, initial: Array) -> Array:
    """Return the value of a layer's variable of the graph, which is made where it has none of this name."""
    if name not in variable_store.store().by_name:
        variable_store.add(NamedVariable(name, initial, trainable=True))
    value: Any = variable_store.store().by_name[name].value_now()
    return value  # type: ignore[no-any-return]  # the store is below the class of its variables


#: The graph of a program that makes none.
_FIRST: Final = Graph()
_DEFAULT: Final[ContextVar[Graph]] = ContextVar("default_graph", default=_FIRST)


def get_default_graph() -> Graph:
    """Return the graph in which variables are made now."""
    return _DEFAULT.get()
