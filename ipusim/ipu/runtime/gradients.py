"""The variables that optimizers train, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

from ipusim.api import Array, learning, models
from ipusim.base.errors import ProgramTypeError, UnsupportedProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.context import Scoped
from ipusim.ipu.runtime.host import Evaluated, EvaluatedTensor, Fetch, Running, Tensor
from ipusim.ipu.runtime.program_state import add, store, using
from ipusim.ipu.runtime.variable import NamedVariable


@dataclass(frozen=True, eq=False)
class Variable(NDArrayOperatorsMixin):
    """A variable as an optimizer sees it in a weight update; what is computed of it is computed of its value.

    Attributes:
        name: as in get_variable.
        array: its value, which may be changed in place.
        state: the optimizer's arrays for the variables of one stage.
    """

    name: str
    array: Array
    state: learning.State

    @property
    def shape(self) -> tuple[int, ...]:
        """The variable's shape."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The variable's dtype."""
        return self.array.dtype

    def numpy(self) -> Array:
        """Return a copy of the value."""
        return self.array.copy()

    read_value = value = numpy

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return a copy of the value."""
        return np.array(self.array, dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Compute with the value."""
        arrays = (input_.array if isinstance(input_, Variable) else input_ for input_ in inputs)
        return getattr(ufunc, method)(*arrays, **options)

    def assign(self, value: npt.ArrayLike) -> None:
        """Set the value; raises ProgramTypeError and ProgramError for one that does not fit."""
        self.array[...] = self._fitting("value", value)

    def assign_add(self, delta: npt.ArrayLike) -> None:
        """Add to the value; raises as :meth:`assign` does."""
        self.array[...] = self.array + self._fitting("delta", delta)

    def assign_sub(self, delta: npt.ArrayLike) -> None:
        """Subtract from the value; raises as :meth:`assign` does."""
        self.array[...] = self.array - self._fitting("delta", delta)

    def _fitting(self, argument: str, value: npt.ArrayLike) -> Array:
        result = checks.numbers(argument, value)
        try:
            return np.broadcast_to(result, self.shape)
        except ValueError:
            checks.wrong_value(
                argument, f"the shape {self.shape} of variable {self.name!r} and not {result.shape}", value
            )


class SymbolicVariable(Variable):
    """A stand-in for a variable beside its gradient in the body of a loop: its name counts."""


#: A gradient and its variable; None for the gradient where there is none.
Pair = tuple[Any, Variable]
#: What a weight update is given: gradients as they were accumulated, each with its variable.
GradientsAndVariables = Iterable[Pair]
#: From a micro-batch's gradient of a variable, and the variable's value, to the gradient to accumulate.
GradientFunction = Callable[[Array, Array], Any]


def gradients_of(loss: Callable[[], Any]) -> list[tuple[Array, NamedVariable]]:
    """Return the gradient of each variable of ``loss`` at the value that it has now, in the order of the variables.

    A loss of several elements counts as their sum. Raises ModelError for a loss that fails or cannot be traced, and
    ProgramTypeError for one that gives several results.
    """
    from ipusim.api import functions  # noqa: PLC0415 - autograd takes a while to import

    with using() as noted:
        tried = models.try_stage("loss", loss, ())
    if len(tried.outputs) != 1:
        raise ProgramTypeError(f"loss: expected one tensor of it, got {len(tried.outputs)}")
    trained = [_kept(noted.get(name), name, array, True) for name, array in tried.variables.items()]
    untrained = {name: _kept(noted.get(name), name, array, False) for name, array in tried.untrained.items()}
    now = {name: variable.value_now() for name, variable in untrained.items()}
    stage = models.FunctionStage("loss", loss, tried.variables, (), True, now, tried.changes)
    with stage.tracing():
        values = [variable.value_now() for variable in trained]
        pull, (value,) = functions.pullback_of_several(stage.call, values, stage.argnums(()))
        result = pull([np.ones_like(value)])
    return [(np.asarray(gradient, item.dtype), item) for gradient, item in zip(result, trained, strict=True)]


def _kept(variable: NamedVariable | None, name: str, initial: Array, trainable: bool) -> NamedVariable:
    """Return the program's own variable of a name that a loss asks for; one that the loss makes is kept."""
    if variable is None or variable.in_stage:
        variable = store().by_name.get(name)
    if variable is None or (variable.shape, variable.dtype) != (initial.shape, initial.dtype):
        variable = NamedVariable(name, initial, trainable)
        add(variable)
    return variable


def gradients_of_tensor(loss: Tensor) -> list[tuple[Tensor, NamedVariable]]:
    """Return the gradient of each trained variable that a tensor of the host is a function of, in their order there.

    Each is a tensor of the host, whose value a session computes at the values that the variables have then.
    """
    sources = {id(source): source for source in loss.sources()}
    variables = [source for source in sources.values() if isinstance(source, NamedVariable) and source.trainable]
    together = Evaluated(lambda running: _gradients(loss, variables, running))
    return [(_gradient(together, index, variable), variable) for index, variable in enumerate(variables)]


def _gradients(loss: Tensor, variables: Sequence[NamedVariable], running: Running) -> list[Array]:
    """Return the gradients of a tensor of the host in a run of a session."""
    import autograd.numpy as anp  # noqa: PLC0415 - autograd takes a while to import
    from autograd import make_vjp  # noqa: PLC0415 - as above

    def sum_of(values: list[Any]) -> Any:
        known = {id(variable): value for variable, value in zip(variables, values, strict=True)}
        return anp.sum(loss.of_sources(lambda item: known[id(item)] if id(item) in known else running.value(item)))

    pull, value = make_vjp(sum_of)([running.value(variable) for variable in variables])
    return list(pull(np.ones_like(value)))


def _gradient(together: Fetch, index: int, variable: NamedVariable) -> Tensor:
    """Return the gradient of one variable, of those that are computed together."""
    return EvaluatedTensor(
        lambda running: np.asarray(running.value(together)[index], variable.dtype), variable.initial, late=True
    )


class UnknownGradient(NDArrayOperatorsMixin):
    """The gradient of a variable of which another's is known; whatever is computed from it is unknown as well."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Take the variable's shape and dtype, which may be asked for."""
        self.shape, self.dtype, self.ndim = shape, dtype, len(shape)

    def __array_ufunc__(self, *_: Any, **__: Any) -> UnknownGradient:
        """Return itself for any of NumPy's operations on elements, and for its other functions."""
        return self

    __array_function__ = __array_ufunc__

    def astype(self, dtype: Any, *_: Any, **__: Any) -> UnknownGradient:
        """Return itself in another dtype."""
        return UnknownGradient(self.shape, np.dtype(dtype))

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        refuse_several()

    __array__ = __float__ = __int__ = __bool__ = __iter__ = __len__ = _refuse


def refuse_several() -> NoReturn:
    """Raise UnsupportedProgramError for what an optimizer makes of several gradients of one micro-batch."""
    raise UnsupportedProgramError(
        "compute_gradients: expected each variable's gradient to be computed by itself, as those of a micro-batch "
        "become known stage by stage: compute what takes several, such as a global norm, in apply_gradients"
    )


#: The pairs of the micro-batch whose gradient is being computed, which compute_gradients returns; None elsewhere.
known: Final[Scoped[Sequence[Pair] | None]] = Scoped("known", None)
