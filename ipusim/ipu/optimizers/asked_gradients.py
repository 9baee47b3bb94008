"""Gradients that the body of a loop asks for and computes with: they are known when the iteration has run backward.

A gradient stands for itself in the body. What is computed from one or several is written down, and done with their
values when the optimizer applies them: so a body clips gradients one by one, or by the norm of them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ipusim.errors import ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu import checks
from ipusim.ipu.loop_body import Asked
from ipusim.ipu.optimizers.variable import GradientsAndVariables, Pair
from ipusim.ipu.structures import leaves, mapped
from ipusim.model.layers.layer import Array

Values = Mapping[str, Array]


class AskedGradient(NDArrayOperatorsMixin):
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
        return np.asarray(self._example).dtype

    @property
    def ndim(self) -> int:
        """Its number of axes."""
        return len(self.shape)

    def __repr__(self) -> str:
        """Say whose it is, and its form."""
        return f"<gradient of {self.name or 'several'} shape={self.shape} dtype={self.dtype}>"

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> AskedGradient:
        """Write an operation on elements down."""
        return computed(getattr(ufunc, method), inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> AskedGradient:
        """Write any other function of NumPy's down."""
        return computed(function, args, options)

    def __getitem__(self, key: Any) -> AskedGradient:
        """Write down that a part is taken."""
        return computed(lambda array: array[key], (self,), {})

    def astype(self, dtype: Any, *_: Any, **__: Any) -> AskedGradient:
        """Write down that it is cast."""
        return computed(lambda array: array.astype(dtype), (self,), {})

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise UnsupportedProgramError(
            "a gradient in the body of a loop has no value before the iteration has run backward: compute with it as "
            "an array, and hand it to apply_gradients of an optimizer"
        )

    __array__ = __float__ = __int__ = __bool__ = __len__ = numpy = _refuse
    __hash__ = object.__hash__


def computed(function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]) -> AskedGradient:
    """Return what ``function`` gives of gradients and anything else, once their values are known."""
    found = [each for each in leaves((args, options)) if isinstance(each, AskedGradient)]
    with np.errstate(all="ignore"):
        example = function(*_filled(args, _example_of), **_filled(options, _example_of))

    def compute(values: Values) -> Any:
        def value(gradient: AskedGradient) -> Any:
            return gradient.compute(values)

        return function(*_filled(args, value), **_filled(options, value))

    losses = [loss for each in found for loss in each.losses]
    return AskedGradient(losses, compute, example, optimizer=found[0].optimizer)


@dataclass(frozen=True, eq=False)
class AskedUpdate:
    """What a body hands to apply_gradients: gradients of one loss, each with the name of its variable.

    Attributes:
        loss: of which they are the gradients.
        gradients: by name of the variable.
        plain: whether each is its variable's own gradient as it came.
    """

    loss: Any
    gradients: Mapping[str, AskedGradient]

    @cached_property
    def plain(self) -> bool:
        """Whether nothing is computed from the gradients."""
        return all(name == each.name for name, each in self.gradients.items())

    def applied(self, pairs: GradientsAndVariables) -> list[Pair]:
        """Return the pairs to apply, of those as they were accumulated; a variable that was left out has None."""
        found = list(pairs)
        values = {variable.name: gradient for gradient, variable in found if gradient is not None}
        with np.errstate(all="ignore"):
            return [
                (None if gradient is None else self._value(variable.name, values, gradient), variable)
                for gradient, variable in found
            ]

    def _value(self, name: str, values: Values, gradient: Array) -> Any:
        asked = self.gradients.get(name)
        return None if asked is None else np.asarray(asked.compute(values))


def gradient_of(loss: Any, name: str, variable: Any, optimizer: Any = None) -> AskedGradient:
    """Return the gradient of ``loss`` for the variable called ``name``, as an optimizer or a tape will compute it."""
    form = np.zeros(np.shape(variable), variable.dtype)
    return AskedGradient([loss], lambda values: values[name], form, name, optimizer)


def loss_of(gradients: Iterable[AskedGradient]) -> Any:
    """Return the loss of gradients; raises UnsupportedProgramError where they are those of several."""
    losses = {id(loss): loss for each in gradients for loss in each.losses}
    if len(losses) > 1:
        raise UnsupportedProgramError(
            f"grads_and_vars: expected gradients of one loss in an iteration, got those of {len(losses)}: add them up"
        )
    (loss,) = losses.values()
    return loss


def asked_update(grads_and_vars: Iterable[Any], asked: Asked) -> AskedUpdate:
    """Return what the body that is running hands to apply_gradients.

    Raises ProgramTypeError for what are no pairs of such a gradient and a variable, ProgramError for none, and
    UnsupportedProgramError for gradients of several losses.
    """
    found: dict[str, AskedGradient] = {}
    try:
        pairs = [(gradient, variable) for gradient, variable in grads_and_vars]
    except (TypeError, ValueError):
        checks.wrong_type("grads_and_vars", "pairs of a gradient and a variable", grads_and_vars)
    if not pairs:
        raise ProgramError("No variables provided.")
    names = [asked.name_of(variable) for _, variable in pairs]
    for name, (gradient, variable) in zip(names, pairs, strict=True):
        if name is None:
            checks.wrong_type("grads_and_vars", "pairs of a gradient and a variable", variable)
        if gradient is None:
            continue
        if not isinstance(gradient, AskedGradient):
            raise ProgramTypeError(
                "grads_and_vars: expected gradients of GradientTape.gradient, or of compute_gradients, in the body of "
                f"a loop, got {type(gradient).__name__} for {name!r}"
            )
        found[name] = gradient
    if not found:
        raise ProgramError(f"No gradients provided for any variable: {names}.")
    return AskedUpdate(loss_of(found.values()), found)


def _example_of(gradient: AskedGradient) -> Any:
    return gradient._example


def _filled(value: Any, of: Callable[[AskedGradient], Any]) -> Any:
    """Return a structure with ``of`` each gradient in its place, and the values of traced arrays."""
    from autograd.tracer import getval  # noqa: PLC0415 - autograd takes a while to import

    return mapped(lambda each: of(each) if isinstance(each, AskedGradient) else getval(each), value)
