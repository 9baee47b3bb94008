"""Gradients that a body asks for by itself, and what it applies: in a body, or on the host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, wraps
from typing import Any, Final, NoReturn, TypeAlias, TypeVar, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ipusim.api import Array, checkpoint, learning
from ipusim.base.errors import ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.context import Scoped
from ipusim.ipu.runtime.distribution import averages, reduced, replicas_in_sync
from ipusim.ipu.runtime.gradients import GradientsAndVariables, Pair, SymbolicVariable, Variable
from ipusim.ipu.runtime.host import Fetch, Operation, Running
from ipusim.ipu.runtime.loop_body import BodyRecord, body_record
from ipusim.ipu.runtime.program_state import store
from ipusim.ipu.runtime.structures import leaves, mapped
from ipusim.ipu.runtime.variable import NamedVariable

Values = Mapping[str, Array]


class SymbolicGradient(NDArrayOperatorsMixin):
    """A gradient, or what is computed from gradients."""

    __array_priority__ = 1000.0

    def __init__(
        self,
        losses: Sequence[Any],
        compute: Callable[[Values], Any],
        example: Any,
        name: str = "",
        optimizer: Any = None,
    ) -> None:
        """Take the losses whose gradients it is made of, what computes it from those, and an array of its form.

        ``name`` is that of the variable whose gradient it is, as it came, empty for anything else; ``optimizer`` the
        one that computes it, None for a tape.
        """
        self.losses, self.compute, self.name, self.optimizer = tuple(losses), compute, name, optimizer
        self._example = example

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return np.shape(self._example)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Its dtype."""
        dtype: np.dtype[Any] = np.asarray(self._example).dtype
        return dtype

    @property
    def ndim(self) -> int:
        """Its number of axes."""
        return len(self.shape)

    def __repr__(self) -> str:
        """Say whose it is, and its form."""
        return f"<gradient of {self.name or 'several'} shape={self.shape} dtype={self.dtype}>"

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> SymbolicGradient:
        """Write an operation on elements down."""
        return computed(getattr(ufunc, method), inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> SymbolicGradient:
        """Write any other function of NumPy's down."""
        return computed(function, args, options)

    def __getitem__(self, key: Any) -> SymbolicGradient:
        """Write down that a part is taken."""
        return computed(lambda array: array[key], (self,), {})

    def astype(self, dtype: Any, *_: Any, **__: Any) -> SymbolicGradient:
        """Write down that it is cast."""
        return computed(lambda array: array.astype(dtype), (self,), {})

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise UnsupportedProgramError(
            "a gradient in the body of a loop has no value before the iteration has run backward: compute with it as "
            "an array, and hand it to apply_gradients of an optimizer"
        )

    __array__ = __float__ = __int__ = __bool__ = __len__ = numpy = _refuse
    __hash__ = object.__hash__


def computed(function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]) -> SymbolicGradient:
    """Return a gradient whose value is that of ``function`` of gradients and anything else, once these are known."""
    result = [leaf for leaf in leaves((args, options)) if isinstance(leaf, SymbolicGradient)]
    with np.errstate(all="ignore"):
        example = function(*_filled(args, _example_of), **_filled(options, _example_of))

    def compute(values: Values) -> Any:
        def value(gradient: SymbolicGradient) -> Any:
            return gradient.compute(values)

        return function(*_filled(args, value), **_filled(options, value))

    losses = [loss for item in result for loss in item.losses]
    return SymbolicGradient(losses, compute, example, optimizer=result[0].optimizer)


@dataclass(frozen=True, eq=False)
class SymbolicUpdate:
    """The gradients that a body hands to apply_gradients: of one loss, each with the name of its variable.

    Attributes:
        loss: of which they are the gradients.
        gradients: by name of the variable.
        plain: whether each is its variable's own gradient as it came.
    """

    loss: Any
    gradients: Mapping[str, SymbolicGradient]

    @cached_property
    def plain(self) -> bool:
        """Whether nothing is computed from the gradients."""
        return all(name == gradient.name for name, gradient in self.gradients.items())

    def applied(self, pairs: GradientsAndVariables) -> list[Pair]:
        """Return the pairs to apply, of those as they were accumulated; a variable that was left out has None."""
        result = list(pairs)
        values = {variable.name: gradient for gradient, variable in result if gradient is not None}
        with np.errstate(all="ignore"):
            return [
                (None if gradient is None else self._value(variable.name, values, gradient), variable)
                for gradient, variable in result
            ]

    def _value(self, name: str, values: Values, gradient: Array) -> Any:
        symbolic = self.gradients.get(name)
        return None if symbolic is None else np.asarray(symbolic.compute(values))


def gradient_of(loss: Any, name: str, variable: Any, optimizer: Any = None) -> SymbolicGradient:
    """Return the gradient of ``loss`` for the variable called ``name``, as an optimizer or a tape will compute it."""
    form = np.zeros(np.shape(variable), variable.dtype)
    return SymbolicGradient([loss], lambda values: values[name], form, name, optimizer)


def loss_of(gradients: Iterable[SymbolicGradient]) -> Any:
    """Return the loss of gradients; raises UnsupportedProgramError where they are those of several."""
    losses = {id(loss): loss for gradient in gradients for loss in gradient.losses}
    if len(losses) > 1:
        raise UnsupportedProgramError(
            f"grads_and_vars: expected gradients of one loss in an iteration, got those of {len(losses)}: add them up"
        )
    (loss,) = losses.values()
    return loss


def pairs_of(grads_and_vars: Iterable[Any], expected: str) -> list[Pair]:
    """Return pairs of gradient and variable as a list; raises ProgramTypeError for others, ProgramError for none."""
    try:
        pairs = [(gradient, variable) for gradient, variable in grads_and_vars]
    except (TypeError, ValueError):
        checks.wrong_type("grads_and_vars", expected, grads_and_vars)
    if not pairs:
        raise ProgramError("No variables provided.")
    return pairs


def symbolic_update(grads_and_vars: Iterable[Any], record: BodyRecord) -> SymbolicUpdate:
    """Return the update that the running body hands to apply_gradients.

    Raises ProgramTypeError for what are no pairs of such a gradient and a variable, ProgramError for none, and
    UnsupportedProgramError for gradients of several losses.
    """
    result: dict[str, SymbolicGradient] = {}
    pairs = pairs_of(grads_and_vars, "pairs of a gradient and a variable")
    names = [record.name_of(variable) for _, variable in pairs]
    for name, (gradient, variable) in zip(names, pairs, strict=True):
        if name is None:
            checks.wrong_type("grads_and_vars", "pairs of a gradient and a variable", variable)
        if gradient is None:
            continue
        if not isinstance(gradient, SymbolicGradient):
            raise ProgramTypeError(
                "grads_and_vars: expected gradients of GradientTape.gradient, or of compute_gradients, in the body of "
                f"a loop, got {type(gradient).__name__} for {name!r}"
            )
        result[name] = gradient
    if not result:
        raise ProgramError(f"No gradients provided for any variable: {names}.")
    return SymbolicUpdate(loss_of(result.values()), result)


def _example_of(gradient: SymbolicGradient) -> Any:
    return gradient._example


def _filled(value: Any, of: Callable[[SymbolicGradient], Any]) -> Any:
    """Return a structure with ``of`` each gradient in its place, and the values of traced arrays."""
    from autograd.tracer import getval  # noqa: PLC0415 - autograd takes a while to import

    return mapped(lambda item: of(item) if isinstance(item, SymbolicGradient) else getval(item), value)


Method = TypeVar("Method", bound=Callable[..., Any])

#: Whether apply_gradients is tried, so that none of this package updates a variable.
trying_updates: Final = Scoped("trying", False)
#: The package whose apply_gradients update variables; those of others say what is done around that.
_OURS: Final = __name__.partition(".")[0]


def applying(method: Method) -> Method:
    """Return a class's apply_gradients, which in a body returns the operation that trains."""

    @wraps(method)
    def apply_gradients(self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        record = body_record()
        if record is None:
            if trying_updates() and method.__module__.partition(".")[0] == _OURS and not self.leaves_update:
                return None
            values = list(grads_and_vars) if isinstance(grads_and_vars, Iterator) else grads_and_vars
            if (pairs := host_pairs(values)) is not None:
                return apply_on_host(self.rule, partial(method, self), pairs, args, kwargs)
            return method(self, values, *args, **kwargs)
        return self._train_op(record, symbolic_update(grads_and_vars, record), args, kwargs)

    return cast(Method, apply_gradients)


def computing(method: Method) -> Method:
    """Return a class's compute_gradients, which in a body returns gradients that will be known."""

    @wraps(method)
    def compute_gradients(self: Any, loss: Any, var_list: Any = None, *args: Any, **kwargs: Any) -> Any:
        record = body_record()
        if record is None or callable(loss):
            return method(self, loss, var_list, *args, **kwargs)
        names = (
            None if var_list is None else {item if isinstance(item, str) else record.name_of(item) for item in var_list}
        )
        return [
            (gradient_of(loss, name, value, self), SymbolicVariable(name, np.zeros(np.shape(value), value.dtype), {}))
            for name, value in record.variables.values()
            if names is None or name in names
        ]

    return cast(Method, compute_gradients)


#: A gradient, which may be a tensor of a session, or None; and the variable of the host.
HostPair: TypeAlias = tuple[Any, NamedVariable]

#: The body whose gradients the host has: apply_gradients takes what it had for its variables.
body_of_host: Final[Scoped[BodyRecord | None]] = Scoped("body_of_host", None)


def host_pairs(pairs: Any) -> list[HostPair] | None:
    """Return pairs whose variables are those of the host; None for pairs of another update, and what are no pairs."""
    try:
        result = [(gradient, _of_host(variable)) for gradient, variable in pairs]
    except (TypeError, ValueError):
        return None
    if not result or any(variable is None for _, variable in result):
        return None
    return [(gradient, variable) for gradient, variable in result if variable is not None]


def apply_on_host(
    rule: learning.Optimizer,
    apply: Callable[..., Any],
    pairs: Sequence[HostPair],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Operation | None:
    """Let ``apply`` of an optimizer with a ``rule`` update variables of the host, whose slots are there as well.

    It does so at once, or where gradients have values in a session. In the scope of a strategy of several hosts they
    are summed up over these, or averaged. Raises as the optimizer does.
    """
    if replicas_in_sync() > 1:
        operation = "average" if averages() else "sum"
        pairs = [
            (None if gradient is None else reduced("apply_gradients", gradient, operation), variable)
            for gradient, variable in pairs
        ]

    def update(running: Running) -> None:
        variables = [variable for _, variable in pairs]
        state = _state(rule, variables)
        stored = [Variable(variable.name, variable.value_now(), state) for variable in variables]
        items = (running.value(gradient) for gradient, _ in pairs)
        # A gradient that the host has dequeued outside of sessions is a tensor around an array.
        arrays = (None if item is None else np.asarray(item) for item in items)
        apply(list(zip(arrays, stored, strict=True)), *args, **kwargs)
        for variable, now in zip(variables, stored, strict=True):
            variable.set(now.array)
        _keep(state, variables)

    if any(isinstance(gradient, Fetch) for gradient, _ in pairs):
        late = any(gradient.late for gradient, _ in pairs if isinstance(gradient, Fetch))
        return Operation("apply_gradients", update, late)
    update(Running())
    return None


def _state(rule: learning.Optimizer, variables: Sequence[NamedVariable]) -> learning.State:
    """Return the optimizer's arrays for these variables: those that they have on the host, others as they begin."""
    slots = {name: array for variable in variables for name, array in variable.slots.items()}
    names = [variable.name for variable in variables]
    first = rule.initial_state({variable.name: variable.value_now() for variable in variables})
    return {key: slots.get(checkpoint.slot_names(names, key)[0], array) for key, array in first.items()}


def _keep(state: learning.State, variables: Sequence[NamedVariable]) -> None:
    """Store the optimizer's slots with their variables."""
    names = [variable.name for variable in variables]
    slots = {name: array for key, array in state.items() for name in checkpoint.slot_names(names, key)}
    for variable in variables:
        variable.slots = checkpoint.slots_of(variable.name, slots)


def _of_host(variable: Any) -> NamedVariable | None:
    """Return a variable of the host, or that which a body had in its place; None for anything else."""
    if isinstance(variable, NamedVariable):
        return variable
    body = body_of_host()
    if isinstance(variable, SymbolicVariable):
        name: str | None = variable.name
    else:
        name = None if body is None else body.name_of(variable)
    result: NamedVariable | None = None if name is None else store().by_name.get(name)
    return result
