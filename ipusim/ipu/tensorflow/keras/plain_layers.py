"""Keras' layers without weights that the core has no layer for."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import autograd.numpy as anp
import numpy as np

from ipusim.base.errors import ProgramError, UnsupportedProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.tensorflow.activations import leaky_relu
from ipusim.ipu.tensorflow.array_functions import cast, maximum, minimum, reduce_max, reduce_mean, tensor
from ipusim.ipu.tensorflow.keras.described import described
from ipusim.ipu.tensorflow.keras.layer import Layer
from ipusim.ipu.tensorflow.keras.probabilities import softmax_of_layer
from ipusim.ipu.tensorflow.keras.utils import custom_objects


class _Plain(Layer):
    """A layer without weights."""

    is_plain = True

    def _of_axes(self, inputs: Any, axes: int) -> Any:
        """Return the input; raises ProgramError in Keras' words where it has another number of axes."""
        x = tensor(inputs)
        if x.ndim != axes:
            raise ProgramError(
                f'Input 0 of layer "{self.name}" is incompatible with the layer: expected ndim={axes}, found '
                f"ndim={x.ndim}. Full shape received: {(None, *x.shape[1:])}"
            )
        return x


class Softmax(_Plain):
    """Keras ``Softmax``."""

    def __init__(self, axis: int = -1, **kwargs: Any) -> None:
        """Take the axis that the sum runs over."""
        super().__init__(**kwargs)
        self._axis = checks.integer("axis", axis)

    def call(self, inputs: Any) -> Any:
        """Return exp(x), divided by its sum; raises ProgramError for an axis out of range."""
        axes = anp.ndim(tensor(inputs))
        if not -axes <= self._axis < axes:
            checks.wrong_value("axis", f"one of the {axes} axes of the input", self._axis)
        return softmax_of_layer(inputs, self._axis)

    def get_config(self) -> dict[str, Any]:
        """Return the axis too."""
        return super().get_config() | {"axis": self._axis}


class GlobalAveragePooling2D(_Plain):
    """Keras ``GlobalAveragePooling2D``."""

    kind = "global_average_pooling2d"

    def call(self, inputs: Any) -> Any:
        """Return the mean of each channel of images (batch, height, width, channels)."""
        return reduce_mean(self._of_axes(inputs, 4), axis=(1, 2))


class GlobalMaxPooling2D(_Plain):
    """Keras ``GlobalMaxPooling2D``."""

    kind = "global_max_pooling2d"

    def call(self, inputs: Any) -> Any:
        """Return the largest element of each channel of images (batch, height, width, channels)."""
        return reduce_max(self._of_axes(inputs, 4), axis=(1, 2))


class GlobalAveragePooling1D(_Plain):
    """Keras ``GlobalAveragePooling1D``."""

    kind = "global_average_pooling1d"

    def call(self, inputs: Any) -> Any:
        """Return the mean over the steps of sequences (batch, steps, elements)."""
        return reduce_mean(self._of_axes(inputs, 3), axis=1)


class GlobalMaxPooling1D(_Plain):
    """Keras ``GlobalMaxPooling1D``."""

    kind = "global_max_pooling1d"

    def call(self, inputs: Any) -> Any:
        """Return the largest element over the steps of sequences (batch, steps, elements)."""
        return reduce_max(self._of_axes(inputs, 3), axis=1)


class Permute(_Plain):
    """Keras ``Permute``."""

    def __init__(self, dims: Any, **kwargs: Any) -> None:
        """Take the order of the axes of a sample, counted from 1; raises ProgramError for what is none."""
        super().__init__(**kwargs)
        self._dims = tuple(dims)
        if sorted(self._dims) != list(range(1, len(self._dims) + 1)):
            checks.wrong_value("dims", "each axis of a sample once, counted from 1", dims)

    def call(self, inputs: Any) -> Any:
        """Return the tensor with its axes in that order."""
        return anp.transpose(self._of_axes(inputs, 1 + len(self._dims)), (0, *self._dims))

    def get_config(self) -> dict[str, Any]:
        """Return the order too."""
        return super().get_config() | {"dims": self._dims}


class RepeatVector(_Plain):
    """Keras ``RepeatVector``."""

    def __init__(self, n: int, **kwargs: Any) -> None:
        """Take how often; raises ProgramError for no whole number from 1."""
        super().__init__(**kwargs)
        self._n = checks.whole("n", n, 1)

    def call(self, inputs: Any) -> Any:
        """Return rows (batch, elements) as sequences (batch, n, elements)."""
        return anp.stack([self._of_axes(inputs, 2)] * self._n, axis=1)

    def get_config(self) -> dict[str, Any]:
        """Return how often too."""
        return super().get_config() | {"n": self._n}


class LeakyReLU(_Plain):
    """Keras ``LeakyReLU``."""

    kind = "leaky_re_lu"

    def __init__(self, alpha: float = 0.3, **kwargs: Any) -> None:
        """Take the slope of what is negative; raises ProgramError for a negative one."""
        super().__init__(**kwargs)
        self._alpha = checks.not_negative("alpha", alpha)

    def call(self, inputs: Any) -> Any:
        """Return x where it is positive, else alpha * x."""
        return leaky_relu(inputs, self._alpha)

    def get_config(self) -> dict[str, Any]:
        """Return the slope too."""
        return super().get_config() | {"alpha": self._alpha}


class Rescaling(_Plain):
    """Keras ``Rescaling``."""

    def __init__(self, scale: float, offset: float = 0.0, **kwargs: Any) -> None:
        """Take both numbers; raises ProgramError and ProgramTypeError for what is none."""
        super().__init__(**kwargs)
        self._scale, self._offset = checks.number("scale", scale), checks.number("offset", offset)

    def call(self, inputs: Any) -> Any:
        """Return x * scale + offset."""
        x = tensor(inputs)
        x = x if x.dtype.kind == "f" else cast(x, np.float32)
        return x * x.dtype.type(self._scale) + x.dtype.type(self._offset)

    def get_config(self) -> dict[str, Any]:
        """Return both too."""
        return super().get_config() | {"scale": self._scale, "offset": self._offset}


class _Merge(_Plain):
    """A layer of several tensors."""

    def _several(self, inputs: Any) -> list[Any]:
        """Return the tensors; raises ProgramError in Keras' words where it is no list of them."""
        if not isinstance(inputs, list | tuple):
            raise ProgramError(f'A merge layer should be called on a list of inputs, layer "{self.name}" is not.')
        if not inputs:
            raise ProgramError(
                f'A merge layer should be called on a list of at least 1 input, layer "{self.name}" got none.'
            )
        return [tensor(input_) for input_ in inputs]


class _Elementwise(_Merge):
    """A layer of several tensors, element by element.

    As in Keras, what has fewer axes than others gets some of one element behind the batch.
    """

    def call(self, inputs: Any) -> Any:
        """Return the tensors, made one; raises ProgramError for shapes that do not go together."""
        value = self._several(inputs)
        axes = max(item.ndim for item in value)
        result = [
            anp.reshape(item, (item.shape[0], *[1] * (axes - item.ndim), *item.shape[1:]))
            if 0 < item.ndim < axes
            else item
            for item in value
        ]
        try:
            np.broadcast_shapes(*(item.shape for item in result))
        except ValueError:
            shapes = " ".join(str(item.shape[1:]) for item in value)
            raise ProgramError(
                f'layer "{self.name}": Operands could not be broadcast together with shapes {shapes}'
            ) from None
        return self._merged(result)

    def _merged(self, values: list[Any]) -> Any:
        raise NotImplementedError


class Maximum(_Elementwise):
    """Keras ``Maximum``: the largest of several tensors, element by element."""

    def _merged(self, values: list[Any]) -> Any:
        return reduce(maximum, values)


class Minimum(_Elementwise):
    """Keras ``Minimum``: the smallest of several tensors, element by element."""

    def _merged(self, values: list[Any]) -> Any:
        return reduce(minimum, values)


class Add(_Elementwise):
    """Keras ``Add``: the sum of several tensors."""

    def _merged(self, values: list[Any]) -> Any:
        return reduce(operator.add, values)


class Subtract(_Elementwise):
    """Keras ``Subtract``: the difference of two tensors; raises ProgramError for another number of them."""

    def _merged(self, values: list[Any]) -> Any:
        if len(values) != 2:
            raise ProgramError(f"A `Subtract` layer should be called on exactly 2 inputs, got {len(values)}")
        return values[0] - values[1]


class Multiply(_Elementwise):
    """Keras ``Multiply``: the product of several tensors, element by element."""

    def _merged(self, values: list[Any]) -> Any:
        return reduce(operator.mul, values)


class Average(_Elementwise):
    """Keras ``Average``: the mean of several tensors, element by element."""

    def _merged(self, values: list[Any]) -> Any:
        total = reduce(operator.add, values)
        return total / total.dtype.type(len(values))


class Concatenate(_Merge):
    """Keras ``Concatenate``."""

    def __init__(self, axis: int = -1, **kwargs: Any) -> None:
        """Take the axis; raises ProgramTypeError for no whole number."""
        super().__init__(**kwargs)
        self._axis = checks.integer("axis", axis)

    def call(self, inputs: Any) -> Any:
        """Return several tensors joined; raises ProgramError in Keras' words where they do not go together."""
        value = self._several(inputs)
        try:
            return anp.concatenate(value, axis=self._axis)
        except ValueError:
            raise ProgramError(
                f'layer "{self.name}": A `Concatenate` layer requires inputs with matching shapes except for the '
                f"concatenation axis {self._axis}, got {', '.join(str((None, *item.shape[1:])) for item in value)}"
            ) from None

    def get_config(self) -> dict[str, Any]:
        """Return the axis too."""
        return super().get_config() | {"axis": self._axis}


class Lambda(_Plain):
    """Keras ``Lambda``: a function of a tensor as a layer."""

    def __init__(self, function: Callable[..., Any], **kwargs: Any) -> None:
        """Take the function; raises ProgramTypeError for what is none."""
        checks.function("function", function, "a function of a tensor")
        kwargs.pop("output_shape", None)
        self._arguments = dict(kwargs.pop("arguments", None) or {})
        super().__init__(**kwargs)
        self._function = function

    def call(self, inputs: Any) -> Any:
        """Return what the function gives."""
        return self._function(inputs, **self._arguments)

    def get_config(self) -> dict[str, Any]:
        """Return the function by its name, and its arguments; raises UnsupportedProgramError for one without a name."""
        name = getattr(self._function, "__name__", "<lambda>")
        if name == "<lambda>":
            raise UnsupportedProgramError(
                f"layer {self.name!r}: expected a function with a name, which load_model finds in custom_objects, as "
                "no code is saved; got a lambda"
            )
        return super().get_config() | {"function": described(self._function), "arguments": self._arguments}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:
        """Return a layer of what ``get_config`` gave; raises ProgramError for a function that is not known."""
        function = custom_objects().get(config["function"])
        if function is None:
            raise ProgramError(
                f"Unknown function: {config['function']}. Please ensure this object is passed to the `custom_objects` "
                "argument."
            )
        return cls(**{**config, "function": function})

    def copied(self) -> Lambda:
        """Return a layer of the same function."""
        return type(self)(self._function, arguments=self._arguments, **super().get_config())


def add(inputs: Any, **kwargs: Any) -> Any:
    """Return the sum of several tensors, by a layer."""
    return Add(**kwargs)(inputs)


def concatenate(inputs: Any, axis: int = -1, **kwargs: Any) -> Any:
    """Return several tensors joined, by a layer."""
    return Concatenate(axis, **kwargs)(inputs)
