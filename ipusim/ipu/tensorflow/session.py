"""What runs programs: sessions, placeholders, and the operations of TensorFlow 1 that have nothing to do here."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

import numpy as np

from ipusim.api import Array, functions
from ipusim.base.errors import ProgramError, ProgramTypeError
from ipusim.ipu import ipu_compiler
from ipusim.ipu.ipu_compiler import compiled, forget
from ipusim.ipu.runtime import checks, program_state
from ipusim.ipu.runtime.building import depending_on, is_late
from ipusim.ipu.runtime.function import CompiledComputation
from ipusim.ipu.runtime.host import Computed, Fetch, Operation, Placeholder, Running
from ipusim.ipu.runtime.loop_body import body_record
from ipusim.ipu.runtime.names import Counts, counting_outside, in_stage
from ipusim.ipu.runtime.run import Pipeline
from ipusim.ipu.runtime.structures import leaves, mapped
from ipusim.ipu.runtime.variable import NamedVariable, waits_for_session
from ipusim.ipu.scopes import ipu_scope, ipu_shard
from ipusim.ipu.tensorflow.array_functions import identity, tensor

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


def _name(value: str | None, default: str) -> str:
    return default if value is None else checks.text("name", value)


def _axes(shape: Any) -> tuple[Any, ...]:
    return tuple(shape) if isinstance(shape, list | tuple) else (shape,)


class ConfigProto:
    """Options of a session, all without effect."""

    def __init__(self, **options: Any) -> None:
        """Take any."""
        self.__dict__.update(options)


class Session:
    """Runs fetches: compiled programs, dequeues, initializers, and tensors of the host.

    Args:
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
        self._graphs.enter_context(program_state.in_session(self))
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
        checks.instance("feed_dict", key, Placeholder, "placeholders as keys")
        return key.fed(value)


def get_default_session() -> Session | None:
    """Return the session in whose block the caller is, None for none."""
    result: Session | None = program_state.session_here()
    return result


def _number(value: Any) -> Any:
    """Return a number of NumPy's for an array without axes, as TensorFlow's sessions do."""
    return value[()] if type(value) is np.ndarray else value


def _flat(fetches: Any) -> Iterator[Any]:
    for leaf in leaves(fetches):
        if not isinstance(leaf, Fetch | np.ndarray | np.generic):
            raise ProgramTypeError(f"Fetch argument {leaf!r} has invalid type {type(leaf)}")
        yield leaf


def global_variables_initializer() -> Operation:
    """Return the operation that sets all variables, and those of programs compiled so far, to their initial values."""
    programs = [item for item in compiled() if isinstance(item, Pipeline)]
    return Operation("init", partial(_initialize, [*program_state.store().variables, *programs]))


initialize_all_variables = global_variables_initializer


def _initialize(result: Sequence[NamedVariable | Pipeline], _: Running) -> None:
    for item in result:
        item.initialize()


def no_op(name: str | None = None) -> Operation:
    """Return an operation that does nothing."""
    return Operation(name or "NoOp")


def group(*inputs: Any, name: str | None = None) -> Operation:
    """Return an operation that does all of ``inputs``, also those in lists; in a stage they are done as they come."""
    grouped = tuple(leaves(inputs))
    if (record := body_record()) is not None:
        record.depend(grouped)
    fetches = [fetch for fetch in grouped if isinstance(fetch, Fetch)]
    return Operation(name or "group", lambda running: running.values(fetches), any(map(is_late, fetches)))


@contextmanager
def control_dependencies(control_inputs: Sequence[Any] | None) -> Iterator[None]:
    """Run ``control_inputs`` before the operations of the block, in each run of a session.

    In the body of a loop what trains among them does so; else a function of a program runs in the order in which it is
    written.
    """
    if (record := body_record()) is not None:
        with record.behind(control_inputs or ()):
            yield
        return
    if in_stage():
        yield
        return
    inputs = None if control_inputs is None else [leaf for leaf in leaves(control_inputs) if isinstance(leaf, Fetch)]
    with depending_on(inputs):
        yield


def identity_n(input: Sequence[Any], name: str | None = None) -> list[Any]:
    """Return the tensors as they are."""
    return [identity(item) for item in input]


def reset_default_graph() -> None:
    """Forget the programs that have been compiled, their variables, and the seed."""
    forget()
    program_state.forget()
    program_state.set_random_seed(0)


def get_logger() -> logging.Logger:
    """Return a logger of TensorFlow's name."""
    return logging.getLogger("tensorflow")


def disable_eager_execution() -> None:
    """Let operations on variables outside of stages wait for a session, as TensorFlow 1's do."""
    program_state.wait_for_sessions()


disable_v2_behavior = disable_eager_execution


def executing_eagerly() -> bool:
    """Tell whether operations on variables have their effect at once."""
    return not waits_for_session()


def _without_effect() -> None:
    """Do nothing: programs run as TensorFlow 1's do."""


disable_v2_tensorshape = enable_resource_variables = _without_effect


class SessionRun(Running):
    """A run of a session, which computes on the device what scopes place there."""

    def evaluate(self, fetch: Fetch) -> Any:
        """Return the value of a Fetch; raises as computations do."""
        if not isinstance(fetch, Computed) or not fetch.on_ipu or not _is_of_placeholders(fetch):
            return super().evaluate(fetch)
        fetch.placed = fetch.placed or PlacedTensor(fetch)
        return fetch.placed.value(self)


class PlacedTensor:
    """The compiled programs of one tensor, by the shapes and dtypes that are fed."""

    def __init__(self, tensor: Computed) -> None:
        """Take the tensor, which is computed of placeholders alone."""
        self._tensor = tensor
        self._inputs = list(dict.fromkeys(_fetches(tensor)))
        self._programs: dict[Any, CompiledComputation] = {}

    def value(self, running: Running) -> Array:
        """Run the program on what is fed; raises as computations do."""
        values = [running.value(input_) for input_ in self._inputs]
        form = tuple((value.shape, value.dtype) for value in values)
        if form in self._programs:
            self._programs[form].run(values)
        else:
            self._programs[form] = CompiledComputation(self._computed, values, name="session_run", at_once=True)
        result: Array = np.asarray(self._programs[form].values())
        return result.astype(self._tensor.dtype, copy=False)

    def _computed(self, *values: Any) -> Any:
        known: dict[int, Any] = {id(item): value for item, value in zip(self._inputs, values, strict=True)}

        def value(tensor: Any) -> Any:
            if isinstance(tensor, Computed) and id(tensor) not in known:
                items = [value(argument) for argument in tensor.arguments]
                with nullcontext() if tensor.shard is None else ipu_shard(tensor.shard):
                    known[id(tensor)] = tensor.function(*items)
            return known.get(id(tensor), tensor)

        return value(self._tensor)


def _is_of_placeholders(tensor: Computed) -> bool:
    """Tell whether a tensor is computed of placeholders alone, so that a program by itself can compute it."""
    return all(isinstance(fetch, Placeholder) for fetch in _fetches(tensor))


def _fetches(tensor: Computed) -> Iterator[Fetch]:
    """Yield the fetches that a session has to evaluate to compute a tensor."""
    for argument in tensor.arguments:
        if isinstance(argument, Computed):
            yield from _fetches(argument)
        elif isinstance(argument, Fetch):
            yield argument


class Graph:
    """Variables by name, and the programs that were compiled where it was the default graph."""

    def __init__(self) -> None:
        """Begin without any."""
        self._variables = program_state.VariableStore()
        self._programs: tuple[Fetch, ...] = ()
        self._names = Counts()

    @property
    def name(self) -> str:
        """``keras_scratch_graph`` while Keras tries layers for the shapes that they give, else ``graph``."""
        from ipusim.ipu.tensorflow.variables import is_trying  # noqa: PLC0415 - Keras takes a while to import

        return "keras_scratch_graph" if is_trying() else "graph"

    @contextmanager
    def as_default(self) -> Iterator[Graph]:
        """Make variables, and compile, in this graph inside the block.

        Layers are also computed there outside of programs, on the host, as for the shape and dtype of their results.
        """
        if get_default_graph() is self:
            yield self
            return
        variables, programs = program_state.store(), ipu_compiler.compiled()
        token = _DEFAULT.set(self)
        program_state.restore(self._variables)
        ipu_compiler.restore(self._programs)
        try:
            with functions.Surrounded(lookup_outside=_made), counting_outside(self._names):
                yield self
        finally:
            self._variables, self._programs = program_state.store(), ipu_compiler.compiled()
            program_state.restore(variables)
            ipu_compiler.restore(programs)
            _DEFAULT.reset(token)

    def finalize(self) -> None:
        """Do nothing."""


def _made(name: str, initial: Array) -> Array:
    """Return the value of a layer's variable of the graph, which is made where it has none of this name."""
    if name not in program_state.store().by_name:
        program_state.add(NamedVariable(name, np.array(initial), trainable=True))
    value: Any = program_state.store().by_name[name].value_now()
    return value  # type: ignore[no-any-return]  # the store is below the class of its variables


#: The graph of a program that makes none.
_FIRST: Final = Graph()
_DEFAULT: Final[ContextVar[Graph]] = ContextVar("default_graph", default=_FIRST)


def get_default_graph() -> Graph:
    """Return the graph in which variables are made now."""
    return _DEFAULT.get()
