"""Wrap Python functions of arrays as layers or losses, differentiated by autograd."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ipusim.base.errors import ModelError, UntraceableError
from ipusim.model.functions.users_code import first_line, line_of, message_of, name_of
from ipusim.model.layers.layer import Array, Key, LayerCost, Parameters, Saved, Shape, Undivided, initial_parameter
from ipusim.model.layers.outline import Outline

#: Samples in the micro-batch of zeros for a trial of the function.
_PROBE_BATCH: Final = 2


@dataclass(frozen=True)
class _PythonFunction:
    """Common parts of function layers and function losses.

    Attributes:
        function: the function, written with ``autograd.numpy``.
        shapes: parameter shapes by keyword.
        fill: constant initial values of parameters. Other parameters start Glorot uniform if they have two axes or more
            (like a Keras kernel), otherwise at zero (like a bias).
        stated_cost: work of both passes; None to count the work by tracing the function.
    """

    function: Callable[..., Any]
    shapes: Mapping[str, Shape] = field(default_factory=dict, hash=False)
    fill: Mapping[str, float] = field(default_factory=dict, hash=False)
    stated_cost: LayerCost | None = None

    def __post_init__(self) -> None:
        """Raise ModelError if ``fill`` names an unknown parameter."""
        for name in self.fill:
            if name not in self.shapes:
                raise ModelError(
                    f"{self._label}: cannot fill {name!r}, because the function has no such parameter; the parameters "
                    f"are {', '.join(self.shapes) or 'none'}"
                )

    @property
    def _label(self) -> str:
        return f"python function {name_of(self.function)!r}"

    def parameter_shapes(self, input_shape: Shape) -> dict[str, Shape]:
        """Return the given parameter shapes."""
        return dict(self.shapes)

    def initial_parameters(
        self, input_shape: Shape, rng: np.random.Generator, dtype: npt.DTypeLike
    ) -> dict[str, Array]:
        """Return the constants, Glorot-uniform draws or zeros of the parameters."""
        return {
            name: np.full(shape, self.fill[name], dtype) if name in self.fill else initial_parameter(shape, rng, dtype)
            for name, shape in self.shapes.items()
        }

    def _trial_parameters(self) -> dict[str, Array]:
        """Return parameters for a trial: zeros, or the constants of ``fill``."""
        return {name: np.full(shape, self.fill.get(name, 0.0)) for name, shape in self.shapes.items()}

    @contextmanager
    def _naming_errors(self, *arrays: Array) -> Iterator[None]:
        """Turn any error of the function into a ModelError with line and input shapes."""
        try:
            yield
        except UntraceableError as error:
            raise ModelError(f"{self._label}: {error}") from error
        except (ModelError, KeyboardInterrupt):
            raise
        except BaseException as error:  # user code may raise anything, even SystemExit
            shapes_text = f" on {' and '.join(str(array.shape) for array in arrays)}" if arrays else ""
            line = line_of(error, self.function)
            raise ModelError(f"{self._label} ({line}){shapes_text}: {message_of(error)}") from error

    def _try(self, x: Array, *labels: Array) -> Array:
        """Run both passes on a few samples and return the result."""
        # Zeros may lead to a division by zero that real data would not cause.
        with np.errstate(all="ignore"), self._naming_errors(x, *labels):
            y, saved_values = self._evaluate(self._trial_parameters(), x, *labels)
            self._differentiate(saved_values, np.ones_like(y), True)
        return y

    def _run(self, parameters: Parameters, x: Array, *labels: Array) -> tuple[Array, Saved]:
        """Evaluate the function, with errors that name it."""
        with self._naming_errors():
            return self._evaluate(parameters, x, *labels)

    def _pull(
        self, saved_values: Saved, grad: Array, need_input_gradient: bool
    ) -> tuple[Array | None, dict[str, Array]]:
        """Differentiate the evaluation, with errors that name the function."""
        with self._naming_errors():
            return self._differentiate(saved_values, grad, need_input_gradient)

    def _evaluate(self, parameters: Parameters, x: Array, *labels: Array) -> tuple[Array, Saved]:
        """Evaluate under a trace; result and gradients have the dtype of ``x``."""
        from ipusim.model.functions.gradient import pullback  # noqa: PLC0415 - slow to import

        arrays = [x, *(parameters[name] for name in self.shapes)]
        pull, y = pullback(self._flat(*labels), arrays, range(len(arrays)))
        if y is None:  # NumPy would convert None to NaN
            raise ModelError(f"{self._label} ({first_line(self.function)}) returned nothing: it must return an array")
        return np.asarray(y, x.dtype), (pull, x.dtype)

    def _differentiate(
        self, saved_values: Saved, grad: Array, need_input_gradient: bool
    ) -> tuple[Array | None, dict[str, Array]]:
        pull, dtype = saved_values
        # For tanh, autograd divides by cosh(x)^2; on overflow the resulting 0 is correct.
        with np.errstate(over="ignore"):
            grad_x, *grads = pull(grad)
        # autograd may return an array twice, or the incoming array; callers add to their gradients.
        gradients = {name: np.array(g, dtype) for name, g in zip(self.shapes, grads, strict=True)}
        return (np.asarray(grad_x, dtype) if need_input_gradient else None), gradients

    def _flat(self, *labels: Array) -> Callable[..., Any]:
        """Return the function of the input and the parameters in order, without keywords."""
        return lambda x, *arrays: self.function(x, *labels, **dict(zip(self.shapes, arrays, strict=True)))

    def _cost(self, itemsize: int, need_input_gradient: bool, x: Array, *labels: Array) -> LayerCost:
        if self.stated_cost is not None:
            return self.stated_cost
        from ipusim.model.functions.counting import count_passes  # noqa: PLC0415 - as above

        parameters = self._trial_parameters()
        argnums = range(0 if need_input_gradient else 1, len(parameters) + 1)
        with np.errstate(all="ignore"), self._naming_errors(x, *labels):
            forward, backward = count_passes(self._flat(*labels), [x, *parameters.values()], argnums)
        return LayerCost(forward.work(itemsize), backward.work(itemsize))


@dataclass(frozen=True)
class PythonLayer(_PythonFunction, Undivided):
    """Layer ``y = f(x, **parameters)``; the first axis of ``x`` and ``y`` is the batch.

    :class:`_PythonFunction` documents the attributes. A counted cost contains the memory traffic of every NumPy call,
    as if calls were executed without fusion. Autograd computes all gradients in a single backward pass, so the whole
    work of this pass counts as its first half, the gradient of the input.
    """

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the output shape of a trial with two samples of zeros.

        Raises ModelError if the function or the gradient fails in the trial, or the number of samples changes.
        """
        y = self._try(np.zeros((_PROBE_BATCH, *input_shape)))
        if y.shape[:1] != (_PROBE_BATCH,):
            raise ModelError(
                f"{self._label} must return an array with the batch as its first axis: "
                f"{_PROBE_BATCH} samples of shape {input_shape} gave shape {y.shape}"
            )
        return y.shape[1:]

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Evaluate the function on (batch, ...)."""
        return self._run(parameters, x)

    def backward(
        self, parameters: Parameters, saved_values: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, dict[str, Array]]:
        """Pull ``grad`` back through the evaluation traced in the forward pass."""
        return self._pull(saved_values, grad, need_input_gradient)

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the given cost, or the cost counted by tracing both passes over ``batch`` samples of zeros."""
        return self._cost(itemsize, need_input_gradient, np.zeros((batch, *input_shape)))


@dataclass(frozen=True)
class PythonLoss(_PythonFunction, Undivided):
    """Loss ``f(x, labels, **parameters)``, the mean over the micro-batch as a scalar.

    :class:`_PythonFunction` documents the other attributes.

    Attributes:
        label_shape, label_dtype: shape and dtype of a sample's label, needed to count the cost.
    """

    label_shape: Shape = ()
    label_dtype: str = "int32"

    def check_labels(self, input_shape: Shape, labels: Array) -> None:
        """Raise ModelError unless a trial with two samples of zeros gives a scalar.

        The trial uses the first labels, or zeros if the labels are outlines.
        """
        batch = min(_PROBE_BATCH, len(labels))
        if labels.shape[1:] != self.label_shape:
            raise ModelError(
                f"{self._label} was declared for labels of shape {self.label_shape} for each sample, "
                f"got {labels.shape[1:]}"
            )
        x = np.zeros((batch, *input_shape))
        is_outlined = isinstance(labels, Outline)
        loss = self._try(x, self.zero_labels(input_shape, batch, x.dtype) if is_outlined else labels[:batch])
        if loss.shape != ():
            raise ModelError(
                f"{self._label} must return a scalar, the mean loss of the micro-batch: it gave shape {loss.shape}"
            )

    def zero_labels(self, input_shape: Shape, samples: int, dtype: npt.DTypeLike) -> Array:
        """Return zero labels of the declared shape and dtype."""
        return np.zeros((samples, *self.label_shape), self.label_dtype)

    def forward(self, parameters: Parameters, x: Array, labels: Array) -> tuple[Array, Saved]:
        """Evaluate the function on outputs (batch, ...) and labels (batch, ...)."""
        return self._run(parameters, x, labels)

    def backward(
        self, parameters: Parameters, saved_values: Saved, scale: float = 1.0, need_input_gradient: bool = True
    ) -> tuple[Array | None, dict[str, Array]]:
        """Pull ``scale`` back through the evaluation traced in the forward pass."""
        return self._pull(saved_values, saved_values[1].type(scale), need_input_gradient)

    def accuracy(self, x: Array, labels: Array) -> float | None:
        """Return None: only the function knows the meaning of the outputs."""
        return None

    def constant_loss(self, labels: Array) -> float | None:
        """Return None: the best constant is unknown."""
        return None

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the given cost, or the cost counted by tracing both passes over ``batch`` samples of zeros."""
        x = np.zeros((batch, *input_shape))
        return self._cost(itemsize, need_input_gradient, x, self.zero_labels(input_shape, batch, x.dtype))
