"""What runs programs: sessions, placeholders, and the operations of TensorFlow 1 that have nothing to do here."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np

from ipusim.errors import ProgramError, ProgramTypeError
from ipusim.ipu import checks, variable_store
from ipusim.ipu.control_inputs import depending_on, is_late
from ipusim.ipu.host import Fetch, Operation, Placeholder, Running
from ipusim.ipu.ipu_compiler import compiled, forget
from ipusim.ipu.loop_body import asking
from ipusim.ipu.names import in_stage
from ipusim.ipu.placed_tensors import SessionRun
from ipusim.ipu.run import Pipeline
from ipusim.ipu.scopes import ipu_scope
from ipusim.ipu.structures import leaves, mapped
from ipusim.ipu.tensorflow.array_functions import identity, tensor
from ipusim.ipu.tensorflow.graphs import Graph, get_default_graph
from ipusim.ipu.tensorflow.seeds import set_random_seed
from ipusim.ipu.variable import NamedVariable, waits_for_session
from ipusim.ipu.variable_store import in_session, session_here, store, wait_for_sessions

__all__ = ["Graph", "get_default_graph", "set_random_seed"]

#: Places computations; a device other than an IPU is the host, where nothing is simulated.
device = ipu_scope


def placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> Placeholder:
    """Return a tensor that each run of a session is fed.

    Axes that are None are as long as what is fed: a program is tried on one element along them, and laid out for as
    many as a run feeds. Raises ProgramError for a shape whose number of axes is not known.
    """
    kind = checks.dtype("dtype", dtype, "biuf")
    if shape is None:
        checks.wrong_value("shape", "sizes of all axes, None for any, such as [None, 2], or [] for a number", shape)
    axes = [None if axis is None else checks.whole("shape", axis) for axis in _axes(shape)]
    example = np.zeros([1 if axis is None else axis for axis in axes], kind)
    return Placeholder(_name(name, "Placeholder"), example, shape=axes)


def placeholder_with_default(input: Any, shape: Any, name: str | None = None) -> Placeholder:
    """Return a tensor that is ``input`` where a run of a session feeds no other; raises ProgramError for a shape."""
    value = checks.numbers("input", input)
    value = tensor(input) if np.isscalar(input) else value
    if _axes(shape) != value.shape:
        checks.wrong_value("shape", f"{list(value.shape)}, as the default has", shape)
    return Placeholder(_name(name, "PlaceholderWithDefault"), value, value)


def _name(given: str | None, default: str) -> str:
    return default if given is None else checks.text("name", given)


def _axes(shape: Any) -> tuple[Any, ...]:
    return tuple(shape) if isinstance(shape, list | tuple) else (shape,)


class ConfigProto:
    """Options of a session, all without effect."""

    def __init__(self, **options: Any) -> None:
        """Take any."""
        self.__dict__.update(options)


class Session:
    """Runs fetches: compiled programs, dequeues, initializers, and tensors of the host.

    Arguments:
        graph: whose variables and programs an initializer in the session's block sets.
        target, config: accepted, and without effect.
    """

    def __init__(self, target: str = "", graph: Graph | None = None, config: object = None) -> None:
        """Open it."""
        self.graph = get_default_graph() if graph is None else graph
        self._closed = False
        self._graphs = ExitStack()

    def __enter__(self) -> Session:
        """Begin to use it, with its graph as the default one, whose operations wait for a run of it."""
        self._graphs.enter_context(self.graph.as_default())
        self._graphs.enter_context(in_session(self))
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self._graphs.close()
        self.close()

    def close(self) -> None:
        """End it."""
        self._closed = True

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Placeholder, Any] | None = None,
        options: object = None,
        run_metadata: object = None,
    ) -> Any:
        """Return the values of ``fetches``, in a structure like theirs; each is evaluated once, dequeues last.

        Raises ProgramError in a closed session, for a placeholder that needs a value and for one of another shape,
        ProgramTypeError for what cannot be fetched or fed.
        """
        if self._closed:
            raise ProgramError("Attempted to use a closed Session.")
        feeds = {} if feed_dict is None else feed_dict
        if not isinstance(feeds, Mapping):
            checks.wrong_type("feed_dict", "a dictionary of values by placeholder", feed_dict)
        running = SessionRun({key: self._fed(key, value) for key, value in feeds.items()})
        for late in (False, True):
            for fetch in _flat(fetches):
                if isinstance(fetch, Fetch) and is_late(fetch) is late:
                    running.value(fetch)
        return mapped(lambda fetch: _number(running.value(fetch)), fetches)

    @staticmethod
    def _fed(key: Any, value: Any) -> Any:
        if not isinstance(key, Placeholder):
            checks.wrong_type("feed_dict", "placeholders as keys", key)
        return key.fed(value)


def get_default_session() -> Session | None:
    """Return the session in whose block the caller is, None for none."""
    found: Session | None = session_here()
    return found


def _number(value: Any) -> Any:
    """Return a number of NumPy's for an array without axes, as TensorFlow's sessions do."""
    return value[()] if type(value) is np.ndarray else value


def _flat(fetches: Any) -> Iterator[Any]:
    for each in leaves(fetches):
        if not isinstance(each, Fetch | np.ndarray | np.generic):
            raise ProgramTypeError(f"Fetch argument {each!r} has invalid type {type(each)}")
        yield each


def global_variables_initializer() -> Operation:
    """Return the operation that sets all variables, and those of programs compiled so far, to their initial values."""
    programs = [each for each in compiled() if isinstance(each, Pipeline)]
    return Operation("init", partial(_initialize, [*store().variables, *programs]))


initialize_all_variables = global_variables_initializer


def _initialize(found: Sequence[NamedVariable | Pipeline]) -> None:
    for each in found:
        each.initialize()


def no_op(name: str | None = None) -> Operation:
    """Return an operation that does nothing."""
    return Operation(name or "NoOp")


def group(*inputs: Any, name: str | None = None) -> Operation:
    """Return an operation that does all of ``inputs``, also those in lists; in a stage they are done as they come."""
    grouped = tuple(leaves(inputs))
    if (asked := asking()) is not None:
        asked.depend(grouped)
    return _Group(name or "group", [fetch for fetch in grouped if isinstance(fetch, Fetch)])


class _Group(Operation):
    """Does all of several in one run of a session."""

    def __init__(self, name: str, fetches: Sequence[Fetch]) -> None:
        super().__init__(name)
        self._fetches = fetches

    @property
    def late(self) -> bool:
        return any(map(is_late, self._fetches))

    def evaluate(self, running: Running) -> None:
        for fetch in self._fetches:
            running.value(fetch)


@contextmanager
def control_dependencies(control_inputs: Sequence[Any] | None) -> Iterator[None]:
    """Let ``control_inputs`` come before what is made in the block, in each run of a session.

    In the body of a loop what trains among them does so; else a function of a program runs in the order in which it is
    written.
    """
    if (asked := asking()) is not None:
        asked.depend(control_inputs or ())
    if in_stage():
        yield
        return
    inputs = None if control_inputs is None else [each for each in leaves(control_inputs) if isinstance(each, Fetch)]
    with depending_on(inputs):
        yield


def identity_n(input: Sequence[Any], name: str | None = None) -> list[Any]:
    """Return the tensors as they are."""
    return [identity(each) for each in input]


def reset_default_graph() -> None:
    """Forget the programs that have been compiled, their variables, and the seed."""
    forget()
    variable_store.forget()
    set_random_seed(0)


def get_logger() -> logging.Logger:
    """Return a logger of TensorFlow's name."""
    return logging.getLogger("tensorflow")


def disable_eager_execution() -> None:
    """Let operations on variables outside of stages wait for a session, as TensorFlow 1's do."""
    wait_for_sessions()


disable_v2_behavior = disable_eager_execution


def executing_eagerly() -> bool:
    """Tell whether operations on variables have their effect at once."""
    return not waits_for_session()


def _without_effect() -> None:
    """Do nothing: programs run as TensorFlow 1's do."""


disable_v2_tensorshape = enable_resource_variables = _without_effect
