"""Layers: immutable descriptions with forward and backward side by side, shapes and costs.

Two conventions hold for every layer and loss. Shapes exclude the batch axis,
which is the first axis of every array. And the cost of a pass counts each array
that it must touch once: ``sram_bytes`` adds the operands read and the results
written; ``exchange_bytes`` adds what vector work takes from other tiles, since each
layer lays out its tensors for itself. Operands of products come to the tiles that
their plans ask for, and are not among them. Both are lower bounds, assumed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from ipusim.model.layers.by_members import ByMembers
from ipusim.model.work import TableBytes, Work

Array = npt.NDArray[Any]
#: Shape of one sample, without the batch axis.
Shape = tuple[int, ...]
#: Arrays by name: a layer's parameters, or their gradients.
Parameters = Mapping[str, Array]
#: What a forward pass keeps for its backward pass; only the layer itself looks inside.
Saved = Any
#: What the first half of a backward pass leaves for the second; only the layer itself looks inside.
Rest = Any
#: What seeds the random draws of one layer in one micro-batch: whole numbers, such as (seed, number of the
#: micro-batch, place of the layer). The draws follow from the key alone, so a recomputation repeats them.
Key = tuple[int, ...]


class Halves(NamedTuple):
    """The work of a backward pass in halves: what makes the gradient of the input, and what those of the parameters.

    Each has compute sets of its own, and takes what it needs over the exchange for itself. What the first hands
    to the second it writes, and the second reads.
    """

    input: Work
    weights: Work


@dataclass(frozen=True)
class LayerCost:
    """The work of one layer's two passes over one micro-batch.

    Attributes:
        forward: of the forward pass.
        backward: of the backward pass in one.
        apart: of its halves; None where the first is all of it, as of layers without parameters.

    Example:
        >>> from ipusim.api import layers
        >>> cost = layers.Dense(units=8).cost((4,), batch=2, itemsize=4)
        >>> cost.forward.macs, cost.backward.macs
        (64, 128)
    """

    forward: Work
    backward: Work
    apart: Halves | None = None

    @property
    def halves(self) -> Halves:
        """The backward pass in halves."""
        return self.apart or Halves(self.backward, Work(itemsize=self.backward.itemsize))

    def with_partials(self, itemsize: int) -> LayerCost:
        """Return the cost of the layer where a partial sum of its products has so many bytes.

        Args:
            itemsize: bytes of a partial sum: 2 or 4.

        Returns:
            The same cost with that size in all of its products.
        """
        apart = self.apart and Halves(*(replace(half, partials_itemsize=itemsize) for half in self.apart))
        forward, backward = (replace(work, partials_itemsize=itemsize) for work in (self.forward, self.backward))
        return LayerCost(forward, backward, apart)


def all_later(backward: Work) -> Halves:
    """Return the halves of a backward pass whose input needs no gradient: all work is in the weight half."""
    return Halves(Work(itemsize=backward.itemsize), backward)


class InnerSizes(NamedTuple):
    """Elements for one sample of what a layer makes besides its input and output.

    Attributes:
        saved: those that stay from the forward pass to the backward pass.
        passing: those that are there within a pass alone.
    """

    saved: int = 0
    passing: int = 0


class Described(Protocol):
    """Common parts of layers and losses: parameters whose shapes are known before any is drawn."""

    def parameter_shapes(self, input_shape: Shape) -> dict[str, Shape]:
        """Return the shape of each parameter by name, in order."""

    def initial_parameters(
        self, input_shape: Shape, rng: np.random.Generator, dtype: npt.DTypeLike
    ) -> dict[str, Array]:
        """Draw the parameters; the draws do not depend on ``dtype``."""

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work of both passes over ``batch`` samples of ``itemsize`` bytes an element."""


class Layer(Described, Protocol):
    """A function of one array and some parameters, with its gradient.

    A layer never modifies its inputs nor what it saved: both may still lie in a
    stash when the next micro-batch comes.
    """

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the shape of one output sample; raises ModelError when the input does not fit."""

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Return the output of the micro-batch ``x``, and what backward needs.

        ``key`` seeds random draws in training; without one the layer draws nothing,
        as in evaluation and inference.
        """

    def backward(
        self, parameters: Parameters, saved: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, dict[str, Array]]:
        """Return the gradient of the input (None when not needed) and of each parameter: both halves in a row.

        ``grad`` is the gradient of the output and has its shape. The gradient of the
        input may be a view of it; those of the parameters are new arrays, which the
        caller may add to.
        """

    def backward_input(
        self, parameters: Parameters, saved: Saved, grad: Array, /, need_input_gradient: bool = True
    ) -> tuple[Array | None, Rest]:
        """Return the gradient of the input (None when not needed), which layers before wait for, and what is left.

        ``backward_weights`` needs only what is left: other arrays of ``saved`` and ``grad`` may be released.
        """

    def backward_weights(self, parameters: Parameters, rest: Rest) -> dict[str, Array]:
        """Return the gradient of each parameter, now or later: the bits that ``backward`` returns.

        ``parameters`` are as they were in ``backward_input``.
        """


@runtime_checkable
class AddsGradients(Protocol, metaclass=ByMembers):
    """A layer that can add the gradients of its parameters to accumulators faster than it can return them."""

    def add_weight_gradients(self, parameters: Parameters, rest: Rest, totals: Parameters) -> None:
        """Add to ``totals`` what ``backward_weights`` returns: arrays of the parameters' names, shapes and dtypes."""


@runtime_checkable
class MakesMore(Protocol, metaclass=ByMembers):
    """A layer that makes larger arrays inside a pass than its input and its output."""

    def inner_sizes(self, input_shape: Shape) -> InnerSizes:
        """Return the sizes of what this simulator's arithmetic makes."""


@runtime_checkable
class TakesTokens(Protocol, metaclass=ByMembers):
    """A layer whose input are whole numbers, which no other layer takes; what comes out are not."""

    def check_ids(self, ids: Array) -> None:
        """Raise ModelError unless ``ids`` (samples, ...) are whole numbers that the layer knows."""


@runtime_checkable
class SharesParameters(Protocol, metaclass=ByMembers):
    """A layer some of whose parameters are those of an earlier layer: the same arrays, with one gradient."""

    @property
    def shared(self) -> Mapping[str, tuple[str, str]]:
        """By its own name for each, the earlier layer and the name there."""


@runtime_checkable
class OnHost(Protocol, metaclass=ByMembers):
    """A layer whose parameters are tables that lie on the host: the IPU asks for rows, and sends their gradients."""

    def table_bytes(self, input_shape: Shape, batch: int, itemsize: int) -> TableBytes:
        """Return the bytes that move for a micro-batch of ``batch`` samples, in training."""


class Loss(Described, Protocol):
    """The last layer of a training network: a scalar of its input and the labels, with its gradient."""

    def zero_labels(self, input_shape: Shape, samples: int, dtype: npt.DTypeLike) -> Array:
        """Return zeros as the labels of so many samples; ``dtype`` is that of the inputs."""

    def check_labels(self, input_shape: Shape, labels: Array) -> None:
        """Raise ModelError when ``labels`` (samples, ...) do not fit inputs of ``input_shape``."""

    def forward(self, parameters: Parameters, x: Array, labels: Array) -> tuple[Array, Saved]:
        """Return the mean loss of the micro-batch as an array of shape (), and what backward needs."""

    def backward(
        self, parameters: Parameters, saved: Saved, scale: float = 1.0, need_input_gradient: bool = True
    ) -> tuple[Array | None, dict[str, Array]]:
        """Return the gradients of ``scale`` times the loss: of the input, and of each parameter."""

    def backward_input(
        self, parameters: Parameters, saved: Saved, scale: float, /, need_input_gradient: bool = True
    ) -> tuple[Array | None, Rest]:
        """Return the gradient of the input, and what ``backward_weights`` needs, as a layer does."""

    def backward_weights(self, parameters: Parameters, rest: Rest) -> dict[str, Array]:
        """Return the gradient of each parameter, as a layer does."""

    def accuracy(self, x: Array, labels: Array) -> float | None:
        """Return the share of samples that ``x`` classifies right, or None when the loss does not classify."""

    def constant_loss(self, labels: Array) -> float | None:
        """Return the loss of the best predictor that ignores its input, or None when unknown."""


class InHalves:
    """Mixin of a layer with parameters and the halves of its backward pass, which makes the whole of them."""

    def initial_parameters(
        self: Described, input_shape: Shape, rng: np.random.Generator, dtype: npt.DTypeLike
    ) -> dict[str, Array]:
        """Draw the kernels Glorot uniform; biases are zero."""
        shapes = self.parameter_shapes(input_shape)
        return {name: initial_parameter(shape, rng, dtype) for name, shape in shapes.items()}

    def backward(
        self: Layer, parameters: Parameters, saved: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, dict[str, Array]]:
        """Return the gradients: of the input (None when not needed), then of each parameter."""
        dx, rest = self.backward_input(parameters, saved, grad, need_input_gradient)
        return dx, self.backward_weights(parameters, rest)


class _Whole(Protocol):
    def backward(
        self, parameters: Parameters, saved: Saved, grad: Any, /, need_input_gradient: bool = True
    ) -> tuple[Array | None, dict[str, Array]]: ...


class Undivided:
    """Mixin of a layer or loss with an undivided backward pass: all work is in the input half.

    The gradients of its parameters wait until the second half hands them out, which costs nothing.
    """

    def backward_input(
        self: _Whole, parameters: Parameters, saved: Saved, grad: Any, /, need_input_gradient: bool = True
    ) -> tuple[Array | None, Rest]:
        """Return the gradient of the input, and those of the parameters as what is left."""
        return self.backward(parameters, saved, grad, need_input_gradient)

    def backward_weights(self, parameters: Parameters, rest: Rest) -> dict[str, Array]:
        """Return the gradients of the parameters, as they are."""
        gradients: dict[str, Array] = rest
        return gradients


class _WithoutParameters(Undivided):
    """What layers and losses without parameters share: all that their backward pass makes is one gradient."""

    def parameter_shapes(self, input_shape: Shape) -> dict[str, Shape]:
        """Return no parameters."""
        return {}

    def initial_parameters(
        self, input_shape: Shape, rng: np.random.Generator, dtype: npt.DTypeLike
    ) -> dict[str, Array]:
        """Return no parameters."""
        return {}

    def input_gradient(self, saved: Saved, grad: Any) -> Array:
        """Return the gradient of the input: of a layer from that of its output, of a loss from its scale."""
        raise NotImplementedError


class Parameterless(_WithoutParameters):
    """Mixin of a layer without parameters, which says the gradient of its input."""

    def backward(
        self, parameters: Parameters, saved: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, dict[str, Array]]:
        """Return the gradient of the input (None when not needed), and none of parameters."""
        return (self.input_gradient(saved, grad) if need_input_gradient else None), {}


class ParameterlessLoss(_WithoutParameters):
    """Mixin of a loss without parameters, which says the gradient of its input; by itself it does not classify."""

    def backward(
        self, parameters: Parameters, saved: Saved, scale: float = 1.0, need_input_gradient: bool = True
    ) -> tuple[Array | None, dict[str, Array]]:
        """Return the gradient of the input (None when not needed), and none of parameters."""
        return (self.input_gradient(saved, scale) if need_input_gradient else None), {}

    def accuracy(self, x: Array, labels: Array) -> float | None:
        """Return None: accuracy is not defined for the loss."""
        return None


class View(Parameterless):
    """A layer that changes how its input is seen, whole numbers too, and moves and touches nothing."""

    def input_gradient(self, saved: Saved, grad: Array) -> Array:
        """Return ``grad`` in the input's shape."""
        return grad.reshape(saved)

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return no work."""
        return LayerCost(Work(itemsize=itemsize), Work(itemsize=itemsize))


DescribedT = TypeVar("DescribedT", bound=Described)


def parameter_count(layer: Described, input_shape: Shape) -> int:
    """Return the number of trainable elements of ``layer`` on this input."""
    return sum(math.prod(shape) for shape in layer.parameter_shapes(input_shape).values())


def inner_sizes(layer: Described, input_shape: Shape) -> InnerSizes:
    """Return the sizes of what ``layer`` makes inside a pass; zero for layers that only make their output."""
    return layer.inner_sizes(input_shape) if isinstance(layer, MakesMore) else InnerSizes()


def initial_parameter(shape: Shape, rng: np.random.Generator, dtype: npt.DTypeLike) -> Array:
    """Draw a kernel, which has two axes or more, as Keras starts one; a bias, which has fewer, is zero."""
    return glorot_uniform(shape, rng, dtype) if len(shape) >= 2 else np.zeros(shape, dtype)


def glorot_uniform(shape: Shape, rng: np.random.Generator, dtype: npt.DTypeLike) -> Array:
    """Draw from [-a, a] with a = sqrt(6 / (fan_in + fan_out)), as Keras initialises kernels.

    The last axis is fan out, the one before fan in, and axes before those are a
    receptive field that multiplies both (Glorot and Bengio 2010; Keras
    ``GlorotUniform``). Drawn in double precision, so that every dtype starts
    from the same numbers.
    """
    field = math.prod(shape[:-2])
    limit = math.sqrt(6.0 / (field * (shape[-2] + shape[-1])))
    return rng.uniform(-limit, limit, shape).astype(dtype, copy=False)
