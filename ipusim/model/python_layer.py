"""Any Python function of arrays as a layer or as the loss, differentiated by autograd."""
# ruff: noqa: ARG002 - a layer has the arguments of its protocol, whether it uses them or not

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ipusim.errors import ModelError
from ipusim.model.layer import Array, LayerCost, Parameters, Saved, Shape, glorot_uniform
from ipusim.model.profile import Work

#: Samples of the micro-batch of zeros that a function is tried on.
_PROBE_BATCH: Final = 2


@dataclass(frozen=True)
class _PythonFunction:
    """What a function as a layer and a function as a loss share.

    Attributes:
        function: the function, written with ``autograd.numpy``.
        shapes: shape of each parameter by its keyword.
        fill: a constant to start a parameter with. Others start Glorot uniform when
            they have two axes or more (as Keras starts a kernel), else zero (a bias).
        given_cost: the work of both passes; None counts it by tracing the function.
    """

    function: Callable[..., Any]
    shapes: Mapping[str, Shape] = field(default_factory=dict, hash=False)
    fill: Mapping[str, float] = field(default_factory=dict, hash=False)
    given_cost: LayerCost | None = None

    def __post_init__(self) -> None:
        """Raise ModelError when ``fill`` names no parameter."""
        for name in self.fill:
            if name not in self.shapes:
                raise ModelError(
                    f"{self._label}: cannot fill {name!r}, which is no parameter; "
                    f"the parameters are {', '.join(self.shapes) or 'none'}"
                )

    @property
    def _label(self) -> str:
        return f"python function {getattr(self.function, '__name__', repr(self.function))!r}"

    def parameter_shapes(self, input_shape: Shape) -> dict[str, Shape]:
        """Return the parameters' shapes as given."""
        return dict(self.shapes)

    def initial_parameters(
        self, input_shape: Shape, rng: np.random.Generator, dtype: npt.DTypeLike
    ) -> dict[str, Array]:
        """Return each parameter's constant, else Glorot-uniform draws, else zeros."""
        parameters: dict[str, Array] = {}
        for name, shape in self.shapes.items():
            if name in self.fill:
                parameters[name] = np.full(shape, self.fill[name], dtype)
            elif len(shape) >= 2:
                parameters[name] = glorot_uniform(shape, rng, dtype)
            else:
                parameters[name] = np.zeros(shape, dtype)
        return parameters

    def _zeros(self) -> dict[str, Array]:
        return {name: np.full(shape, self.fill.get(name, 0.0)) for name, shape in self.shapes.items()}

    def _try(self, *arrays: Array) -> Array:
        """Evaluate on a few samples; an error of the function becomes a ModelError with its line."""
        try:
            with np.errstate(all="ignore"):  # zeros may divide by zero where data does not
                return np.asarray(self.function(*arrays, **self._zeros()))
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            shapes = ", ".join(str(array.shape) for array in arrays)
            raise ModelError(
                f"{self._label} on arrays of shape {shapes}: {type(error).__name__}: {error} "
                f"({frame.filename}:{frame.lineno})"
            ) from error

    def _run(self, parameters: Parameters, x: Array, *labels: Array) -> tuple[Array, Saved]:
        """Evaluate and keep the vector-Jacobian product; result and gradients have the dtype of the parameters."""
        from autograd import make_vjp  # noqa: PLC0415 - 0.04 s that only models with Python functions pay

        names = tuple(self.shapes)
        differentiable = x.dtype.kind == "f"  # token numbers and the like have no gradient

        def flat(*arrays: Any) -> Any:
            return self.function(arrays[0], *labels, **dict(zip(names, arrays[1:], strict=True)))

        wanted = tuple(range(0 if differentiable else 1, len(names) + 1))
        dtype = np.result_type(*(parameters[name] for name in names)) if names else x.dtype
        if not wanted:
            return np.asarray(flat(x)), (None, False, dtype)
        vjp, y = make_vjp(flat, wanted)(x, *(parameters[name] for name in names))
        return np.asarray(y, dtype), (vjp, differentiable, dtype)

    def _pull(self, saved: Saved, grad: Array, need_input_gradient: bool) -> tuple[Array | None, dict[str, Array]]:
        vjp, differentiable, dtype = saved
        if vjp is None:
            return None, {}
        grads = vjp(grad)
        grad_x = np.asarray(grads[0], dtype) if need_input_gradient and differentiable else None
        # autograd may hand out one array twice, or the gradient that came in; callers accumulate in place.
        own = grads[1:] if differentiable else grads
        return grad_x, {name: np.array(g, dtype) for name, g in zip(self.shapes, own, strict=True)}

    def _cost(self, itemsize: int, need_input_gradient: bool, x: Array, *labels: Array) -> LayerCost:
        if self.given_cost is not None:
            return self.given_cost
        from ipusim.model.counting import count_passes  # noqa: PLC0415 - as above

        names = tuple(self.shapes)
        parameters = self._zeros()

        def flat(*arrays: Any) -> Any:
            return self.function(arrays[0], *labels, **dict(zip(names, arrays[1:], strict=True)))

        wanted = range(0 if need_input_gradient else 1, len(names) + 1)
        with np.errstate(all="ignore"):
            forward, backward = count_passes(flat, [x, *parameters.values()], wanted)
        weights = sum(array.size for array in parameters.values()) if need_input_gradient else 0
        labels_read = sum(array.size for array in labels)
        y = 1 if labels else self._try(x).size
        return LayerCost(
            Work(forward.macs, forward.flops, forward.elements * itemsize, (x.size + labels_read) * itemsize, itemsize),
            Work(
                backward.macs, backward.flops, backward.elements * itemsize, (y + x.size + weights) * itemsize, itemsize
            ),
        )


@dataclass(frozen=True)
class PythonLayer(_PythonFunction):
    """A layer ``y = f(x, **parameters)``; the first axis of ``x`` and ``y`` is the batch.

    See :class:`_PythonFunction` for the attributes. A counted cost charges every
    NumPy call its own memory traffic, as without fusion.
    """

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the shape that two samples of zeros come out with.

        Raises ModelError when the function fails on them, or returns no
        floating-point array of as many samples.
        """
        y = self._try(np.zeros((_PROBE_BATCH, *input_shape)))
        if y.dtype.kind != "f" or y.shape[:1] != (_PROBE_BATCH,):
            raise ModelError(
                f"{self._label} must return a floating-point array with the batch as its first axis: "
                f"{_PROBE_BATCH} samples of shape {input_shape} gave {y.dtype} of shape {y.shape}"
            )
        return y.shape[1:]

    def forward(self, parameters: Parameters, x: Array) -> tuple[Array, Saved]:
        """Evaluate the function on (batch, ...)."""
        return self._run(parameters, x)

    def backward(
        self, parameters: Parameters, saved: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, dict[str, Array]]:
        """Pull ``grad`` back through the evaluation that forward traced."""
        return self._pull(saved, grad, need_input_gradient)

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the given cost, or what tracing both passes over ``batch`` samples of zeros counts."""
        return self._cost(itemsize, need_input_gradient, np.zeros((batch, *input_shape)))


@dataclass(frozen=True)
class PythonLoss(_PythonFunction):
    """A loss ``f(x, labels, **parameters)`` that returns the mean over the micro-batch as a scalar.

    See :class:`_PythonFunction` for the attributes.

    Attributes:
        label_shape, label_dtype: of one sample's label, which counting the cost needs.
    """

    label_shape: Shape = ()
    label_dtype: str = "int32"

    def check_labels(self, input_shape: Shape, labels: Array) -> None:
        """Raise ModelError unless two samples of zeros with the first labels give a floating-point scalar."""
        batch = min(_PROBE_BATCH, len(labels))
        if labels.shape[1:] != self.label_shape:
            raise ModelError(
                f"{self._label} was declared for labels of shape {self.label_shape} for each sample, "
                f"got {labels.shape[1:]}"
            )
        loss = self._try(np.zeros((batch, *input_shape)), labels[:batch])
        if loss.dtype.kind != "f" or loss.shape != ():
            raise ModelError(
                f"{self._label} must return a floating-point scalar, the mean loss of the micro-batch: "
                f"it gave {loss.dtype} of shape {loss.shape}"
            )

    def forward(self, parameters: Parameters, x: Array, labels: Array) -> tuple[Array, Saved]:
        """Evaluate the function on outputs (batch, ...) and labels (batch, ...)."""
        return self._run(parameters, x, labels)

    def backward(
        self, parameters: Parameters, saved: Saved, scale: float = 1.0, need_input_gradient: bool = True
    ) -> tuple[Array | None, dict[str, Array]]:
        """Pull ``scale`` back through the evaluation that forward traced."""
        return self._pull(saved, saved[2].type(scale), need_input_gradient)

    def accuracy(self, x: Array, labels: Array) -> float | None:
        """Return None: what the outputs mean is known to the function alone."""
        return None

    def constant_loss(self, labels: Array) -> float | None:
        """Return None: the best constant is not known."""
        return None

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the given cost, or what tracing both passes over ``batch`` samples of zeros counts."""
        labels = np.zeros((batch, *self.label_shape), self.label_dtype)
        return self._cost(itemsize, need_input_gradient, np.zeros((batch, *input_shape)), labels)
