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
from ipusim.ipu.tensorflow.array_functions import cast, reduce_max, reduce_mean, tensor
from ipusim.ipu.tensorflow.keras.custom_objects import custom_objects
from ipusim.ipu.tensorflow.keras.described import described
from ipusim.ipu.tensorflow.keras.layer import Layer
from ipusim.ipu.tensorflow.keras.probabilities import softmax_of_layer
from ipusim.ipu.tensorflow.nn import leaky_relu


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


class GlobalAveragePooling1D(_Plain):
    """Keras ``GlobalAveragePooling1D``."""

    kind = "global_average_pooling1d"

    def call(self, inputs: Any) -> Any:
        """Return the mean over the steps of sequences (batch, steps, elements)."""
        return reduce_mean(inputs, axis=1)


class GlobalMaxPooling1D(_Plain):
    """Keras ``GlobalMaxPooling1D``."""

    kind = "global_max_pooling1d"

    def call(self, inputs: Any) -> Any:
        """Return the largest element over the steps of sequences (batch, steps, elements)."""
        return reduce_max(inputs, axis=1)


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
        return anp.transpose(tensor(inputs), (0, *self._dims))

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
        return anp.stack([tensor(inputs)] * self._n, axis=1)

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
        """Take both numbers."""
        super().__init__(**kwargs)
        self._scale, self._offset = float(scale), float(offset)

    def call(self, inputs: Any) -> Any:
        """Return x * scale + offset."""
        x = tensor(inputs)
        x = x if x.dtype.kind == "f" else cast(x, np.float32)
        return x * x.dtype.type(self._scale) + x.dtype.type(self._offset)

    def get_config(self) -> dict[str, Any]:
        """Return both too."""
        return super().get_config() | {"scale": self._scale, "offset": self._offset}


class Maximum(_Plain):
    """Keras ``Maximum``."""

    def call(self, inputs: Any) -> Any:
        """Return the largest of several tensors, element by element."""
        return reduce(anp.maximum, map(tensor, inputs))


class Minimum(_Plain):
    """Keras ``Minimum``."""

    def call(self, inputs: Any) -> Any:
        """Return the smallest of several tensors, element by element."""
        return reduce(anp.minimum, map(tensor, inputs))


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
