"""A variable as an optimizer sees it: its value, and beside it what the optimizer keeps of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

from ipusim.ipu import checks
from ipusim.model.layers.layer import Array
from ipusim.model.learning.optimizers import State


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
    state: State

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
        arrays = (each.array if isinstance(each, Variable) else each for each in inputs)
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
        found = checks.numbers(argument, value)
        try:
            return np.broadcast_to(found, self.shape)
        except ValueError:
            checks.wrong_value(
                argument, f"the shape {self.shape} of variable {self.name!r} and not {found.shape}", value
            )


class AskedVariable(Variable):
    """What stands for a variable beside its gradient in the body of a loop: its name counts."""


#: A gradient and its variable; None for the gradient where there is none.
Pair = tuple[Any, Variable]
#: What a weight update is given: gradients as they were accumulated, each with its variable.
GradientsAndVariables = Iterable[Pair]
#: From a micro-batch's gradient of a variable, and the variable's value, to the gradient to accumulate.
GradientFunction = Callable[[Array, Array], Any]
