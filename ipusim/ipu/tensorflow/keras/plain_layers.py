"""Keras' layers without weights that the core has no layer for."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import autograd.numpy as anp
import numpy as np

from ipusim.errors import ProgramError, UnsupportedProgramError
from ipusim.ipu import checks
from ipusim.ipu.tensorflow.array_functions import reduce_max, reduce_mean, tensor
from ipusim.ipu.tensorflow.keras.custom_objects import custom_objects
from ipusim.ipu.tensorflow.keras.described import described
from ipusim.ipu.tensorflow.keras.layer import Layer
from ipusim.ipu.tensorflow.keras.probabilities import softmax_of_layer


class _Plain(Layer):
    """A layer without weights."""

    is_plain = True


class Softmax(_Plain):
    """Keras ``Softmax``."""

    def __init__(self, axis: int = -1, **kwargs: Any) -> None:
        """Take the axis that the sum runs over."""
        super().__init__(**kwargs)
        self._axis = axis

    def call(self, inputs: Any) -> Any:
        """Return exp(x), divided by its sum."""
        return softmax_of_layer(inputs, self._axis)

    def get_config(self) -> dict[str, Any]:
        """Return the axis too."""
        return super().get_config() | {"axis": self._axis}


class GlobalAveragePooling2D(_Plain):
    """Keras ``GlobalAveragePooling2D``."""

    kind = "global_average_pooling2d"

    def call(self, inputs: Any) -> Any:
        """Return the mean of each channel of images (batch, height, width, channels)."""
        return reduce_mean(inputs, axis=(1, 2))


class GlobalMaxPooling2D(_Plain):
    """Keras ``GlobalMaxPooling2D``."""

    kind = "global_max_pooling2d"

    def call(self, inputs: Any) -> Any:
        """Return the largest element of each channel of images (batch, height, width, channels)."""
        return reduce_max(inputs, axis=(1, 2))


class Add(_Plain):
    """Keras ``Add``."""

    def call(self, inputs: Any) -> Any:
        """Return the sum of several tensors."""
        return reduce(operator.add, map(tensor, inputs))


class Subtract(_Plain):
    """Keras ``Subtract``."""

    def call(self, inputs: Any) -> Any:
        """Return the difference of two tensors."""
        first, second = map(tensor, inputs)
        return first - second


class Multiply(_Plain):
    """Keras ``Multiply``."""

    def call(self, inputs: Any) -> Any:
        """Return the product of several tensors, element by element."""
        return reduce(operator.mul, map(tensor, inputs))


class Average(_Plain):
    """Keras ``Average``."""

    def call(self, inputs: Any) -> Any:
        """Return the mean of several tensors, element by element."""
        return reduce(operator.add, map(tensor, inputs)) / np.float32(len(inputs))


class Concatenate(_Plain):
    """Keras ``Concatenate``."""

    def __init__(self, axis: int = -1, **kwargs: Any) -> None:
        """Take the axis."""
        super().__init__(**kwargs)
        self._axis = axis

    def call(self, inputs: Any) -> Any:
        """Return several tensors joined."""
        return anp.concatenate([tensor(each) for each in inputs], axis=self._axis)

    def get_config(self) -> dict[str, Any]:
        """Return the axis too."""
        return super().get_config() | {"axis": self._axis}


class Lambda(_Plain):
    """Keras ``Lambda``: a function of a tensor as a layer."""

    def __init__(self, function: Callable[..., Any], **kwargs: Any) -> None:
        """Take the function; raises ProgramTypeError for what is none."""
        if not callable(function):
            checks.wrong_type("function", "a function of a tensor", function)
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
