"""Define layers and losses: immutable descriptions with forward and backward passes, shapes and costs.

Two conventions hold for layers and losses. Shapes exclude the batch axis, the first axis of every array. The cost of a
pass counts each necessary access to an array once. ``sram_bytes`` are operands read and results written.
``exchange_bytes`` are data that vector work receives from other tiles, since layers choose tensor layouts
independently; operands of products are not included, as they travel according to the products' plans. Both counts are
lower bounds (assumed).
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
#: Shape of a sample, without the batch axis.
Shape = tuple[int, ...]
#: Arrays by name: a layer's parameters, or their gradients.
Parameters = Mapping[str, Array]
#: Data kept between forward and backward pass; private to the layer.
Saved = Any
#: Data kept between the halves of a backward pass; private to the layer.
Rest = Any
#: Seed of a layer's random draws in a micro-batch: whole numbers, such as (seed, micro-batch, position of the layer).
#: Draws depend on the key alone, which makes recomputation repeatable.
Key = tuple[int, ...]


class Halves(NamedTuple):
    """Work of a backward pass in halves: input gradient and parameter gradients.

    Each half has separate compute sets and exchanges. The first half writes data that the second half reads.
    """

    input: Work
    weights: Work


@dataclass(frozen=True)
class LayerCost:
    """Work of a layer's two passes over a micro-batch.

    Attributes:
        forward: work of the forward pass.
        backward: work of the undivided backward pass.
        apart: work of the halves; None if the first half has all the work, for example without parameters.

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
        """Backward pass in halves."""
        return self.apart or Halves(self.backward, Work(itemsize=self.backward.itemsize))

    def with_partials(self, itemsize: int) -> LayerCost:
        """Return the layer's cost with another size of partial sums.

        Args:
            itemsize: bytes of a partial sum: 2 or 4.

        Returns:
            The same cost with the given size in every product.
        """
        halves = self.apart and Halves(*(replace(half, partials_itemsize=itemsize) for half in self.apart))
        forward, backward = (replace(work, partials_itemsize=itemsize) for work in (self.forward, self.backward))
        return LayerCost(forward, backward, halves)


def all_later(backward: Work) -> Halves:
    """Return the halves of a backward pass whose whole work is in the weight half."""
    return Halves(Work(itemsize=backward.itemsize), backward)


class InnerSizes(NamedTuple):
    """Numbers of elements per sample that a layer creates, in addition to input and output.

    Attributes:
        saved_elements: elements kept from forward to backward pass.
        passing: temporary elements within a pass.
    """

    saved_elements: int = 0
    passing: int = 0


class NetworkPart(Protocol):
    """Common parts of layers and losses: parameters with shapes known before initialisation."""

    def parameter_shapes(self, input_shape: Shape) -> dict[str, Shape]:
        """Return the shapes of the parameters by name, in order."""

    def initial_parameters(
        self, input_shape: Shape, rng: np.random.Generator, dtype: npt.DTypeLike
    ) -> dict[str, Array]:
        """Draw the parameters; the draws do not depend on ``dtype``."""

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return the work of both passes over ``batch`` samples of ``itemsize`` bytes an element."""


class Layer(NetworkPart, Protocol):
    """A function of an array and parameters, with gradient.

    A layer never modifies inputs or saved data: both may still be in a stash when the next micro-batch arrives.
    """

    def output_shape(self, input_shape: Shape) -> Shape:
        """Return the shape of an output sample; raises ModelError for an unsuitable input."""

    def forward(self, parameters: Parameters, x: Array, key: Key | None = None) -> tuple[Array, Saved]:
        """Return the output of the micro-batch ``x``, and the saved data for backward.

        ``key`` seeds random draws in training; without a key the layer draws nothing, as in evaluation and inference.
        """

    def backward(
        self, parameters: Parameters, saved_values: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, dict[str, Array]]:
        """Return the gradients of the input (None if not needed) and of the parameters.

        ``grad`` is the gradient of the output, in the output's shape. The input's gradient may be a view of ``grad``.
        Parameter gradients are new arrays that the caller may add to.
        """

    def backward_input(
        self, parameters: Parameters, saved_values: Saved, grad: Array, /, need_input_gradient: bool = True
    ) -> tuple[Array | None, Rest]:
        """Return the gradient of the input (None if not needed), and the rest for ``backward_weights``.

        Earlier layers wait for the gradient. ``backward_weights`` needs only the rest: other arrays of ``saved_values``
        and ``grad`` may be released.
        """

    def backward_weights(self, parameters: Parameters, rest_values: Rest) -> dict[str, Array]:
        """Return the gradients of the parameters, bit by bit the gradients of ``backward``.

        The call may come later; ``parameters`` are unchanged since ``backward_input``.
        """


@runtime_checkable
class AddsGradients(Protocol, metaclass=ByMembers):
    """A layer with a fast addition of parameter gradients to accumulators."""

    def add_weight_gradients(self, parameters: Parameters, rest_values: Rest, totals: Parameters) -> None:
        """Add the result of ``backward_weights`` to ``totals``: arrays named and shaped like the parameters."""


@runtime_checkable
class MakesMore(Protocol, metaclass=ByMembers):
    """A layer that creates larger arrays inside a pass than input and output."""

    def inner_sizes(self, input_shape: Shape) -> InnerSizes:
        """Return the sizes of the arrays created by this simulator's arithmetic."""


@runtime_checkable
class TakesTokens(Protocol, metaclass=ByMembers):
    """A layer with whole numbers as input, unlike other layers, and floating-point output."""

    def check_ids(self, ids: Array) -> None:
        """Raise ModelError unless ``ids`` (samples, ...) are whole numbers valid for the layer."""


@runtime_checkable
class SharesParameters(Protocol, metaclass=ByMembers):
    """A layer that shares parameters with an earlier layer: the same arrays, with a single gradient."""

    @property
    def shared_parameters(self) -> Mapping[str, tuple[str, str]]:
        """Pairs (earlier layer, name there) of the shared parameters, by local name."""


@runtime_checkable
class OnHost(Protocol, metaclass=ByMembers):
    """A layer with parameter tables on the host: the IPU requests rows and sends row gradients."""

    def table_bytes(self, input_shape: Shape, batch: int, itemsize: int) -> TableBytes:
        """Return the bytes moved per micro-batch of ``batch`` samples, in training."""


class Loss(NetworkPart, Protocol):
    """The last layer of a training network: a scalar of input and labels, with gradient."""

    def zero_labels(self, input_shape: Shape, samples: int, dtype: npt.DTypeLike) -> Array:
        """Return zeros as labels of ``samples`` samples; ``dtype`` is the dtype of the inputs."""

    def check_labels(self, input_shape: Shape, labels: Array) -> None:
        """Raise ModelError if ``labels`` (samples, ...) do not fit inputs of ``input_shape``."""

    def forward(self, parameters: Parameters, x: Array, labels: Array) -> tuple[Array, Saved]:
        """Return the mean loss, an array of shape (), and the saved data for backward."""

    def backward(
        self, parameters: Parameters, saved_values: Saved, scale: float = 1.0, need_input_gradient: bool = True
    ) -> tuple[Array | None, dict[str, Array]]:
        """Return the gradients of ``scale`` times the loss: input first, then parameters."""

    def backward_input(
        self, parameters: Parameters, saved_values: Saved, scale: float, /, need_input_gradient: bool = True
    ) -> tuple[Array | None, Rest]:
        """Return the gradient of the input, and the rest for ``backward_weights``, like a layer."""

    def backward_weights(self, parameters: Parameters, rest_values: Rest) -> dict[str, Array]:
        """Return the gradients of the parameters, like a layer."""

    def accuracy(self, x: Array, labels: Array) -> float | None:
        """Return the share of samples that ``x`` classifies correctly; None for a loss without classes."""

    def constant_loss(self, labels: Array) -> float | None:
        """Return the loss of the best predictor that ignores the input; None if it is unknown."""


class InHalves:
    """Mixin of a layer with parameters and a divided backward pass; ``backward`` combines the halves."""

    def initial_parameters(
        self: NetworkPart, input_shape: Shape, rng: np.random.Generator, dtype: npt.DTypeLike
    ) -> dict[str, Array]:
        """Draw the kernels Glorot uniform; biases are zero."""
        shapes = self.parameter_shapes(input_shape)
        return {name: initial_parameter(shape, rng, dtype) for name, shape in shapes.items()}

    def backward(
        self: Layer, parameters: Parameters, saved_values: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, dict[str, Array]]:
        """Return the gradients of the input (None if not needed) and of the parameters."""
        dx, rest_values = self.backward_input(parameters, saved_values, grad, need_input_gradient)
        return dx, self.backward_weights(parameters, rest_values)


class _HasBackward(Protocol):
    def backward(
        self, parameters: Parameters, saved_values: Saved, grad: Any, /, need_input_gradient: bool = True
    ) -> tuple[Array | None, dict[str, Array]]: ...


class Undivided:
    """Mixin of a layer or loss with an undivided backward pass.

    The input half contains the whole work. Parameter gradients wait until the second half returns them for free.
    """

    def backward_input(
        self: _HasBackward, parameters: Parameters, saved_values: Saved, grad: Any, /, need_input_gradient: bool = True
    ) -> tuple[Array | None, Rest]:
        """Return the gradient of the input, and the parameter gradients as the rest."""
        return self.backward(parameters, saved_values, grad, need_input_gradient)

    def backward_weights(self, parameters: Parameters, rest_values: Rest) -> dict[str, Array]:
        """Return the gradients of the parameters, unchanged."""
        gradients: dict[str, Array] = rest_values
        return gradients


class _WithoutParameters(Undivided):
    """Common parts of layers and losses without parameters: a backward pass with a single gradient."""

    def parameter_shapes(self, input_shape: Shape) -> dict[str, Shape]:
        """Return no parameters."""
        return {}

    def initial_parameters(
        self, input_shape: Shape, rng: np.random.Generator, dtype: npt.DTypeLike
    ) -> dict[str, Array]:
        """Return no parameters."""
        return {}

    def input_gradient(self, saved_values: Saved, grad: Any) -> Array:
        """Return the gradient of the input, given a layer's output gradient or a loss's scale."""
        raise NotImplementedError


class Parameterless(_WithoutParameters):
    """Mixin of a layer without parameters, which only defines the input's gradient."""

    def backward(
        self, parameters: Parameters, saved_values: Saved, grad: Array, need_input_gradient: bool = True
    ) -> tuple[Array | None, dict[str, Array]]:
        """Return the gradient of the input (None if not needed), without parameter gradients."""
        return (self.input_gradient(saved_values, grad) if need_input_gradient else None), {}


class ParameterlessLoss(_WithoutParameters):
    """Mixin of a loss without parameters, which only defines the input's gradient; by default without classes."""

    def backward(
        self, parameters: Parameters, saved_values: Saved, scale: float = 1.0, need_input_gradient: bool = True
    ) -> tuple[Array | None, dict[str, Array]]:
        """Return the gradient of the input (None if not needed), without parameter gradients."""
        return (self.input_gradient(saved_values, scale) if need_input_gradient else None), {}

    def accuracy(self, x: Array, labels: Array) -> float | None:
        """Return None: the loss defines no accuracy."""
        return None


class View(Parameterless):
    """A layer that only changes the view of its input, whole numbers included, free of cost."""

    def input_gradient(self, saved_values: Saved, grad: Array) -> Array:
        """Return ``grad`` in the input's shape."""
        return grad.reshape(saved_values)

    def cost(self, input_shape: Shape, batch: int, itemsize: int, need_input_gradient: bool = True) -> LayerCost:
        """Return no work."""
        return LayerCost(Work(itemsize=itemsize), Work(itemsize=itemsize))


NetworkPartT = TypeVar("NetworkPartT", bound=NetworkPart)


def parameter_count(layer: NetworkPart, input_shape: Shape) -> int:
    """Return the number of trainable elements of ``layer`` on this input."""
    return sum(math.prod(shape) for shape in layer.parameter_shapes(input_shape).values())


def inner_sizes(layer: NetworkPart, input_shape: Shape) -> InnerSizes:
    """Return the sizes of additional arrays created by ``layer`` inside a pass."""
    return layer.inner_sizes(input_shape) if isinstance(layer, MakesMore) else InnerSizes()


def initial_parameter(shape: Shape, rng: np.random.Generator, dtype: npt.DTypeLike) -> Array:
    """Draw a kernel (two axes or more) like Keras; a bias (fewer axes) is zero."""
    return glorot_uniform(shape, rng, dtype) if len(shape) >= 2 else np.zeros(shape, dtype)


def glorot_uniform(shape: Shape, rng: np.random.Generator, dtype: npt.DTypeLike) -> Array:
    """Draw from [-a, a] with a = sqrt(6 / (fan_in + fan_out)), like Keras initialises kernels.

    The last axis is fan out, the axis before fan in. Earlier axes are a receptive field that multiplies both (Glorot
    and Bengio 2010; Keras ``GlorotUniform``). Draws in double precision give every dtype the same numbers.
    """
    field = math.prod(shape[:-2])
    limit = math.sqrt(6.0 / (field * (shape[-2] + shape[-1])))
    return rng.uniform(-limit, limit, shape).astype(dtype, copy=False)
