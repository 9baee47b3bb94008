"""Layers in Keras' names: each is the core's own, so that it costs what it costs in a scenario."""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from typing import Any, ClassVar, Final

import autograd.numpy as anp
import numpy as np
import numpy.typing as npt

from ipusim.errors import ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu import checks
from ipusim.ipu.layers import run
from ipusim.ipu.names import counts, scope, unique
from ipusim.ipu.tensorflow.array_functions import reduce_max, reduce_mean, tensor
from ipusim.ipu.tensorflow.initializers import Initializer, initializer_of
from ipusim.ipu.tensorflow.nn import core_activation
from ipusim.ipu.tensorflow.nn import softmax as softmax_of
from ipusim.ipu.tensorflow.offered import offering
from ipusim.ipu.tensorflow.scoping import drawn
from ipusim.ipu.tensorflow.seeds import seed_of
from ipusim.ipu.variable import NamedVariable, asked_for
from ipusim.model.functions.variables import check_inside
from ipusim.model.layers import convolution, dropout, embedding, gru, layers, lstm, normalisation, pooling
from ipusim.model.layers.layer import Array, Layer, Shape

#: Keras' names of parameters.
_PARAMETERS: Final = {"W": "kernel", "U": "recurrent_kernel", "b": "bias"}
#: Arguments that change nothing that is simulated, and those that must be what they stand with.
_WITHOUT_EFFECT: Final = frozenset({"input_shape", "input_dim", "batch_input_shape", "seed", "momentum", "dtype"})
_ONLY: Final[dict[str, tuple[Any, ...]]] = {
    "data_format": (None, "channels_last"),
    "dilation_rate": (1, (1, 1), [1, 1]),
    "trainable": (None, True),
    "axis": (-1, [-1]),
    "noise_shape": (None,),
    "return_state": (False,),
    "stateful": (False,),
    "unroll": (False,),
    "go_backwards": (False,),
    "recurrent_dropout": (0, 0.0),
    "mask_zero": (False,),
}


class CoreLayer:
    """A layer of the core, made with the arguments of its Keras namesake.

    Its name, where none is given, is that of its kind with a number behind it; its parameters are variables
    ``name/kernel`` and so on in the scope in which it is called first.
    """

    core: ClassVar[type]
    kind: ClassVar[str]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take the layer's own arguments, initializers, and ``name``.

        Raises ProgramTypeError for an argument that there is not, UnsupportedProgramError for what is not simulated,
        ModelError for a value that the layer does not take.
        """
        own = [field.name for field in fields(self.core)]
        if len(args) > len(own):
            raise ProgramTypeError(f"{type(self).__name__}: expected at most {len(own)} arguments, got {len(args)}")
        given = dict(zip(own, args, strict=False))
        for argument in given.keys() & kwargs.keys():
            raise ProgramTypeError(f"{type(self).__name__}() got multiple values for argument {argument!r}")
        self._given_name = kwargs.pop("name", None)
        if self._given_name is not None:
            checks.text("name", self._given_name)
        self._initializers = {
            argument.removesuffix("_initializer"): initializer_of(kwargs.pop(argument))
            for argument in list(kwargs)
            if argument.endswith("_initializer") and argument.removesuffix("_initializer") in self._names().values()
        }
        self._after = None
        arguments = given | {name: value for name, value in kwargs.items() if name in own}
        self._check({name: value for name, value in kwargs.items() if name not in own})
        if "activation" in arguments:
            arguments["activation"], self._after = core_activation(arguments["activation"])
        self._layer: Layer = self.core(**{name: _fitting(name, value) for name, value in arguments.items()})
        self._key: Any = self._layer
        self._scope: str | None = None
        self._variables: dict[str, NamedVariable] = {}
        self._name = ""
        self._place = 0

    def _check(self, others: dict[str, Any]) -> None:
        for name, value in others.items():
            if name in _ONLY:
                if not any(value is each or (value == each and type(value) is type(each)) for each in _ONLY[name]):
                    raise UnsupportedProgramError(
                        f"{type(self).__name__}: {name} is simulated as {_ONLY[name][0]!r} alone, got {value!r}"
                    )
            elif name.endswith(("_regularizer", "_constraint")):
                if value is not None:
                    raise UnsupportedProgramError(f"{type(self).__name__}: {name} is not simulated, got {value!r}")
            elif name not in _WITHOUT_EFFECT:
                raise ProgramTypeError(f"{type(self).__name__}() got an unexpected keyword argument {name!r}")

    @property
    def name(self) -> str:
        """Its name; where none was given, that of its kind until it is called."""
        return self._given_name or self._name or self.kind

    def _names(self) -> dict[str, str]:
        """Return Keras' names of parameters by the core's."""
        return _PARAMETERS | {"gamma": "gamma", "beta": "beta"}

    def __call__(self, inputs: Any, training: bool | None = None, **_: Any) -> Any:
        """Return the layer's output for ``inputs`` (batch, ...).

        Raises ModelError outside of a stage and for an input that it does not take; ProgramError for another layer
        of its name in the program.
        """
        check_inside(self.name)
        x, layer, called = tensor(inputs), self._layer, counts()
        automatic = unique(self.kind) if self._given_name is None else self._given_name
        if self._scope is None:
            self._scope, self._name, self._place = scope().prefix, automatic, called.layers
        called.layers += 1
        full = self._scope + self._name
        if called.owners.setdefault(full, self) is not self and scope().reuse is False:
            raise ProgramError(f"The name {full!r} is used by two layers of the program: all names must be unique")
        layer.output_shape(tuple(x.shape[1:]))
        y = run(layer, x, self._parameters(x, full), draws_as=full)
        return y if self._after is None else self._after(y)

    def _parameters(self, x: Any, full: str) -> dict[str, Any]:
        dtype = x.dtype if x.dtype.kind == "f" else np.dtype(np.float32)
        seed = seed_of(None), self._place
        names = self._names()
        found: dict[str, Any] = {}
        for own, initial in _initial(self._key, tuple(x.shape[1:]), dtype, seed).items():
            chosen = self._initializers.get(names[own])
            value = initial
            if isinstance(chosen, Initializer):
                value = drawn(chosen, initial.shape, np.dtype(dtype), (seed_of(chosen.seed), self._place, len(found)))
            elif chosen is not None:
                value = np.asarray(chosen(initial.shape), dtype)
            found[own] = self._variable(f"{full}/{names[own]}", value).read_value()
        return found

    def _variable(self, name: str, initial: Array) -> NamedVariable:
        """Return a parameter, which is the layer's own in all programs that call it."""
        kept = self._variables.get(name)
        if kept is None or (kept.shape, kept.dtype) != (initial.shape, initial.dtype):
            kept = self._variables[name] = asked_for(name, np.array(initial), shares=scope().reuse is not False)
        return kept


@lru_cache(maxsize=256)
def _initial(of: Any, shape: Shape, dtype: npt.DTypeLike, seed: tuple[int, ...]) -> dict[str, Array]:
    """Draw a layer's parameters as a scenario does, where the place is that in the network."""
    found: dict[str, Array] = of.initial_parameters(shape, np.random.default_rng(seed), dtype)
    return found


def _fitting(name: str, value: Any) -> Any:
    """Return one size for both axes as two, and lists as tuples, as the core has them."""
    if name in ("kernel_size", "strides", "pool_size") and isinstance(value, int):
        return (value, value)
    return tuple(value) if isinstance(value, list) else value.lower() if name == "padding" else value


class Dense(CoreLayer):
    """Keras ``Dense``."""

    core, kind = layers.Dense, "dense"


class Flatten(CoreLayer):
    """Keras ``Flatten``."""

    core, kind = layers.Flatten, "flatten"


class Reshape(CoreLayer):
    """Keras ``Reshape``."""

    core, kind = layers.Reshape, "reshape"


class Activation(CoreLayer):
    """Keras ``Activation``."""

    core, kind = layers.ActivationLayer, "activation"


class ReLU(CoreLayer):
    """Keras ``ReLU`` without its arguments."""

    core, kind = layers.ActivationLayer, "re_lu"

    def __init__(self, name: str | None = None) -> None:
        """Take a name."""
        super().__init__("relu", name=name)


class Dropout(CoreLayer):
    """Keras ``Dropout``."""

    core, kind = dropout.Dropout, "dropout"


class Conv2D(CoreLayer):
    """Keras ``Conv2D``."""

    core, kind = convolution.Conv2D, "conv2d"


class MaxPooling2D(CoreLayer):
    """Keras ``MaxPooling2D``."""

    core, kind = pooling.MaxPool2D, "max_pooling2d"


class AveragePooling2D(CoreLayer):
    """Keras ``AveragePooling2D``."""

    core, kind = pooling.AveragePool2D, "average_pooling2d"


class BatchNormalization(CoreLayer):
    """Keras ``BatchNormalization`` of the last axis, by statistics of each micro-batch: there are no moving ones."""

    core, kind = normalisation.BatchNorm, "batch_normalization"

    def __call__(self, inputs: Any, training: bool | None = None, **others: Any) -> Any:
        """Return the normalised input; raises UnsupportedProgramError for moving statistics."""
        if training is False:
            raise UnsupportedProgramError("BatchNormalization: moving statistics are not simulated: expected training")
        return super().__call__(inputs, training, **others)


class LayerNormalization(CoreLayer):
    """Keras ``LayerNormalization`` of the last axis."""

    core, kind = normalisation.LayerNorm, "layer_normalization"


class GroupNormalization(CoreLayer):
    """Graphcore's Keras ``GroupNormalization``."""

    core, kind = normalisation.GroupNorm, "group_normalization"


class InstanceNormalization(CoreLayer):
    """Graphcore's Keras ``InstanceNormalization``."""

    core, kind = normalisation.InstanceNorm, "instance_normalization"


class Embedding(CoreLayer):
    """Keras ``Embedding``."""

    core, kind = embedding.Embedding, "embedding"

    def _names(self) -> dict[str, str]:
        return {"W": "embeddings"}


class LSTM(CoreLayer):
    """Keras ``LSTM``."""

    core, kind = lstm.LSTM, "lstm"


class GRU(CoreLayer):
    """Keras ``GRU``."""

    core, kind = gru.GRU, "gru"


class Softmax:
    """Keras ``Softmax``."""

    def __init__(self, axis: int = -1) -> None:
        """Take the axis that the sum runs over."""
        self._axis = axis

    def __call__(self, inputs: Any) -> Any:
        """Return exp(x), divided by its sum."""
        return softmax_of(inputs, self._axis)


class GlobalAveragePooling2D:
    """Keras ``GlobalAveragePooling2D``."""

    def __call__(self, inputs: Any) -> Any:
        """Return the mean of each channel of images (batch, height, width, channels)."""
        return reduce_mean(inputs, axis=(1, 2))


class GlobalMaxPooling2D:
    """Keras ``GlobalMaxPooling2D``."""

    def __call__(self, inputs: Any) -> Any:
        """Return the largest element of each channel of images (batch, height, width, channels)."""
        return reduce_max(inputs, axis=(1, 2))


class Add:
    """Keras ``Add``."""

    def __call__(self, inputs: Any) -> Any:
        """Return the sum of several tensors."""
        first, *others = map(tensor, inputs)
        for other in others:
            first = first + other
        return first


class Concatenate:
    """Keras ``Concatenate``."""

    def __init__(self, axis: int = -1) -> None:
        """Take the axis."""
        self._axis = axis

    def __call__(self, inputs: Any) -> Any:
        """Return several tensors joined."""
        return anp.concatenate([tensor(each) for each in inputs], axis=self._axis)


_OFFERED: Final = (
    "Activation Add AveragePooling2D BatchNormalization Concatenate Conv2D Dense Dropout Embedding Flatten GRU "
    "GlobalAveragePooling2D GlobalMaxPooling2D GroupNormalization InstanceNormalization LSTM LayerNormalization "
    "MaxPooling2D ReLU Reshape Softmax"
)
__getattr__, __dir__ = offering("tf.keras.layers", {name: f"{__name__}:{name}" for name in _OFFERED.split()})
