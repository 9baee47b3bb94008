"""A stage that is one Python function of any number of arrays, with variables that it asks for by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from ipusim.base.errors import IpusimError, ModelError, UntraceableError
from ipusim.model.functions.surrounded import Surrounded
from ipusim.model.functions.untrained import Untrained, check_same, frozen
from ipusim.model.functions.users_code import message_of
from ipusim.model.layers.layer import Array, Key, Parameters, Saved
from ipusim.model.stages.bound_stage import Receiver

#: What travels between such stages: a tuple of arrays.
Arrays = tuple[Array, ...]


def as_results(value: Any) -> tuple[Any, ...]:
    """Return what a stage's function returned as a tuple: one value as a tuple of one, None as an empty one."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, tuple | list) else (value,)


@dataclass(frozen=True, eq=False)
class FunctionStage:
    """A computational stage ``outputs = function(*inputs)``, written with ``autograd.numpy``.

    Attributes:
        name: the stage's name.
        function: takes the outputs of the stage before, one argument each, and returns an array or several.
        variables: initial value of each variable that the function asks for, by name.
        learned: for each input whether it depends on a variable of an earlier stage: the others need no
            gradient, as TensorFlow takes gradients of the variables alone.
        has_loss: whether the first of the results is the loss, which stays with the stage.
        untrained: initial value of each variable that the function asks for and no optimizer trains, by name.
        changes: which of these its first call has changed.
    """

    name: str
    function: Callable[..., Any]
    variables: Mapping[str, Array] = field(default_factory=dict)
    learned: tuple[bool, ...] = ()
    has_loss: bool = False
    untrained: Mapping[str, Array] = field(default_factory=dict)
    changes: tuple[str, ...] = ()
    #: A function is differentiated as a whole, and what it takes and passes on travels.
    recomputes_itself: ClassVar[bool] = False
    stores: ClassVar[tuple[str, ...]] = ()
    fetches: ClassVar[tuple[str, ...]] = ()

    @property
    def layers(self) -> tuple[str, ...]:
        """The stage itself: a function has no layers."""
        return (self.name,)

    def initial_parameters(self, seed: int, dtype: npt.DTypeLike) -> dict[str, Array]:
        """Return copies of the variables' initial values, each in its own dtype."""
        return {name: array.copy() for name, array in self.variables.items()}

    def initial_untrained(self) -> dict[str, Array]:
        """Return the initial values of the variables that no optimizer trains."""
        return {name: frozen(array) for name, array in self.untrained.items()}

    def bind(self, parameters: Parameters) -> BoundFunction:
        """Return the passes of the function on ``parameters``."""
        return BoundFunction(self, parameters)

    def call(self, *arrays: Any) -> tuple[Any, ...]:
        """Run the function on the values of the variables, in their order, and then its inputs.

        Raises ModelError for a variable that the function did not ask for when it was first tried.
        """
        count = len(self.variables)
        values = dict(zip(self.variables, arrays[:count], strict=True))

        def lookup(name: str, _: Array) -> Any:
            if name not in values:
                raise ModelError(
                    f"stage {self.name!r} asked for variable {name!r}, but not when it was tried on the first "
                    "micro-batch: ask for all variables in every call"
                )
            return values[name]

        with Surrounded(lookup=lookup):
            return as_results(self.function(*arrays[count:]))

    def argnums(self, inputs: Sequence[Array]) -> list[int]:
        """Return the numbers of the arguments of :meth:`call` that get a gradient: variables, then such inputs."""
        count = len(self.variables)
        return [*range(count), *(count + at for at, needed in enumerate(self.needed(inputs)) if needed)]

    def needed(self, inputs: Sequence[Array]) -> tuple[bool, ...]:
        """Return for each input whether its gradient is needed; never that of whole numbers."""
        learned = self.learned or (False,) * len(inputs)
        return tuple(learns and x.dtype.kind == "f" for learns, x in zip(learned, inputs, strict=True))

    def teaches(self, inputs: Arrays) -> tuple[bool, ...]:
        """Return for each output whether it depends on a variable, of this stage or an earlier one.

        Raises ModelError when the function cannot be traced.
        """
        from ipusim.model.functions.gradient import dependent  # noqa: PLC0415 - autograd takes a while to import

        with self.tracing():
            return dependent(self.call, [*self.variables.values(), *inputs], self.argnums(inputs))

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Turn whatever a trace of the function raises into a ModelError that names the stage.

        Untrained variables are at their initial values, and no change of them stays.
        """
        try:
            with np.errstate(all="ignore"), Surrounded(untrained=Untrained(self.initial_untrained())):
                yield
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a user's function may do anything under a trace
            what = "" if isinstance(error, IpusimError) else "it cannot be traced: "
            raise ModelError(f"stage {self.name!r}: {what}{message_of(error)}") from error


class BoundFunction:
    """Runs the passes of a function on variables that are updated in place."""

    def __init__(self, stage: FunctionStage, parameters: Parameters) -> None:
        """Take the variables in the order of the stage's own."""
        self._stage = stage
        self._parameters = {name: parameters[name] for name in stage.variables}
        self._owned = {id(_owner(array)) for array in self._parameters.values()}

    def forward(self, x: Arrays, labels: Array | None, key: Key | None = None) -> tuple[Arrays, Saved]:
        """Evaluate the function; under a trace in training, which a ``key`` tells.

        Raises UntraceableError for plain NumPy on what needs a gradient, as a branch not taken before may have it.
        """
        stage, arrays = self._stage, [_read_only(array) for array in (*self._parameters.values(), *x)]
        if key is None:
            pull, results = None, stage.call(*arrays)
        else:
            from ipusim.model.functions.gradient import pullback_of_several  # noqa: PLC0415 - autograd takes a while to import

            try:
                with Surrounded(key=key):
                    pull, results = pullback_of_several(stage.call, arrays, stage.argnums(x))
            except UntraceableError as error:
                raise UntraceableError(f"stage {stage.name!r}: {error}") from error
        outputs = tuple(np.asarray(result) for result in results)
        # A variable, or a view of one, is what it is now: the update changes it in place.
        outputs = tuple(array.copy() if id(_owner(array)) in self._owned else array for array in outputs)
        forms = tuple((array.shape, array.dtype) for array in outputs)
        takers = tuple(array.dtype if needed else None for array, needed in zip(x, stage.needed(x), strict=True))
        return outputs[1:] if stage.has_loss else outputs, (pull, forms, takers)

    def backward(
        self,
        saved: Saved,
        grad: Arrays | None,
        need_input_gradient: bool,
        receive: Receiver,
        totals: Parameters | None = None,
    ) -> tuple[Array | None, ...] | None:
        """Pull the gradients of the outputs, or of the loss, back; inputs that need none get None.

        A loss of several elements counts as their sum, as in TensorFlow.
        """
        pulled, gradients = self.backward_input(saved, grad, need_input_gradient)
        self.backward_weights(gradients, receive, totals)
        return pulled

    def backward_input(
        self, saved: Saved, grad: Arrays | None, need_input_gradient: bool
    ) -> tuple[tuple[Array | None, ...] | None, list[Array]]:
        """Run the whole backward pass, as autograd goes back once; keep the variables' gradients."""
        pull, forms, takers = saved
        if self._stage.has_loss:
            shape, dtype = forms[0]
            grads: list[Any] = [np.ones(shape, dtype), *[None] * (len(forms) - 1)]
        else:
            grads = list(grad or ())
        with np.errstate(over="ignore"):  # as in python_layer: autograd's tanh divides by what may overflow
            pulled = pull(grads)
        own = [
            np.asarray(gradient, parameter.dtype)
            for parameter, gradient in zip(self._parameters.values(), pulled, strict=False)
        ]
        if not need_input_gradient:
            return None, own
        rest = iter(pulled[len(own) :])
        return tuple(None if dtype is None else np.asarray(next(rest), dtype) for dtype in takers), own

    def backward_weights(self, rest: list[Array], receive: Receiver, totals: Parameters | None = None) -> None:
        """Hand out the variables' gradients."""
        for name, gradient in zip(self._parameters, rest, strict=True):
            receive(name, gradient)


class Tried(NamedTuple):
    """The results and variables of a function that was run once.

    Attributes:
        variables: initial values of the variables that it asked for, by name.
        outputs: what it returned.
        untrained: initial values of those that no optimizer trains.
        changes: which of these it has changed.
    """

    variables: dict[str, Array]
    outputs: Arrays
    untrained: dict[str, Array]
    changes: tuple[str, ...]


def try_stage(name: str, function: Callable[..., Any], inputs: Arrays) -> Tried:
    """Run a function once and return its results and variables.

    Raises ModelError when it fails, as where it changes an array that it is given, or returns what is no array, and
    for one variable asked for in two shapes.
    """
    variables: dict[str, Array] = {}
    untrained = _Noted()

    def lookup(variable: str, initial: Array) -> Array:
        value = variables.get(variable)
        if value is None:
            value = variables[variable] = np.array(initial)
        check_same(variable, value, initial)
        return _read_only(value)

    try:
        with Surrounded(lookup=lookup, untrained=untrained), np.errstate(all="ignore"):
            results = as_results(function(*map(_read_only, inputs)))
            nested = next((result for result in results if isinstance(result, tuple | list | Mapping)), None)
            if nested is not None:  # its arrays would be taken out of a trace, and no gradient come back
                raise ModelError(
                    f"stage {name!r}: expected an array or a tuple of arrays, got a {type(nested).__name__} in it"
                )
            outputs = tuple(map(np.asarray, results))
    except (IpusimError, KeyboardInterrupt):
        raise
    except BaseException as error:
        shapes = ", ".join(f"{x.dtype}{list(x.shape)}" for x in inputs) or "nothing"
        changed = isinstance(error, ValueError) and "read-only" in message_of(error)  # NumPy's words
        hint = ": others use the array too, so assign the result to a new name" if changed else ""
        raise ModelError(f"stage {name!r} failed on {shapes}: {message_of(error)}{hint}") from error
    for index, output in enumerate(outputs):
        if output.dtype.kind not in "biuf":
            raise ModelError(f"stage {name!r}: expected arrays of numbers as outputs, got {output.dtype} in {index}")
    both = sorted(variables.keys() & untrained.initial.keys())
    if both:
        raise ModelError(f"variable {both[0]!r} was asked for with trainable=True and with trainable=False")
    return Tried(variables, outputs, untrained.initial, tuple(sorted(untrained.changed)))


class _Noted(Untrained):
    """Untrained variables as a function asks for them the first time.

    Attributes:
        initial: the value of each when it was first asked for.
    """

    def __init__(self) -> None:
        super().__init__({}, takes_new=True)
        self.initial: dict[str, Array] = {}

    def read(self, name: str, initial: Array) -> Array:
        value = super().read(name, initial)
        self.initial.setdefault(name, value)
        return value


def _owner(array: Array) -> Array:
    """Return the array whose memory a view shows; itself, where it has its own."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _read_only(array: Array) -> Array:
    """Return a view that a user's function cannot change: the array is a variable, or of the dataset."""
    view = array.view()
    view.flags.writeable = False
    return view
