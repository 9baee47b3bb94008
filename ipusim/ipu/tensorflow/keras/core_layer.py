"""Layers of the core with the arguments of their Keras namesakes."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from functools import cache, partial
from typing import Any, ClassVar, Final

import numpy as np

from ipusim.api import Array, Shape, layers
from ipusim.api import functions as core_functions
from ipusim.base.errors import ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.ipu.runtime.initializers import Initializer, drawn, initializer_of
from ipusim.ipu.runtime.layers import initial_parameters, run
from ipusim.ipu.runtime.names import program_trains, scope
from ipusim.ipu.runtime.program_state import seed_of
from ipusim.ipu.runtime.variable import NamedVariable, named_variable
from ipusim.ipu.tensorflow.activations import core_activation, gate_activation, keras_name, logistic
from ipusim.ipu.tensorflow.array_functions import tensor
from ipusim.ipu.tensorflow.keras import activations
from ipusim.ipu.tensorflow.keras.described import described, revived
from ipusim.ipu.tensorflow.keras.layer import Layer
from ipusim.ipu.tensorflow.keras.probabilities import Probabilities, is_last, softmax_of_layer
from ipusim.ipu.tensorflow.keras.symbolic import KerasTensor, Node
from ipusim.ipu.tensorflow.keras.utils import custom_object_scope, custom_objects
from ipusim.ipu.tensorflow.nn import softmax as softmax_of
from ipusim.ipu.tensorflow.variables import is_trying, may_change

#: Keras' names of initializers that are not called as their weights are.
_INITIALIZERS: Final = {
    "recurrent_kernel_initializer": "recurrent_initializer",
    "depthwise_kernel_initializer": "depthwise_initializer",
}
#: Arguments that change nothing that is simulated, and those that must be what they stand with.
_WITHOUT_EFFECT: Final = frozenset({"seed"})
_OF_ALL_LAYERS: Final = ("name", "trainable", "dtype", "input_shape", "batch_input_shape")
_ONLY: Final[dict[str, tuple[Any, ...]]] = {
    "data_format": (None, "channels_last"),
    "dilation_rate": (1, (1, 1), [1, 1]),
    "axis": (-1, [-1]),
    "noise_shape": (None,),
    "output_padding": (None,),
    "unroll": (False,),
    "go_backwards": (False,),
    "dropout": (0, 0.0),
    "recurrent_dropout": (0, 0.0),
    "mask_zero": (False,),
}


class CoreLayer(Layer):
    """A layer of the core, made with the arguments of its Keras namesake.

    Its name, where none is given, is that of its kind with a number behind it. In a model its parameters are the
    model's weights; in a stage's function they are variables ``name/kernel`` and so on in the scope in which it is
    called first.
    """

    core: ClassVar[type]
    kind: ClassVar[str]
    #: Keras' names of its parameters.
    _names: ClassVar[Mapping[str, str]] = {
        **{"W": "kernel", "U": "recurrent_kernel", "b": "bias"},
        **{"gamma": "gamma", "beta": "beta"},
    }
    #: The order of its arguments in Keras, where it is another than the core's.
    _order: ClassVar[tuple[str, ...]] = ()
    #: Along how many its windows go, if it has any.
    _axes: ClassVar[int] = 2

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take the layer's own arguments, initializers, and ``name``.

        Raises ProgramTypeError for an unknown argument, UnsupportedProgramError for what is not simulated,
        ModelError for a value that the layer does not take.
        """
        own = _arguments_of(self.core)
        _take_sizes(kwargs, own)
        order = self._order or own
        if len(args) > len(order):
            raise ProgramTypeError(f"{type(self).__name__}: expected at most {len(order)} arguments, got {len(args)}")
        options = dict(zip(order, args, strict=False))
        for argument in options.keys() & kwargs.keys():
            raise ProgramTypeError(f"{type(self).__name__}() got multiple values for argument {argument!r}")
        kwargs = options | kwargs
        base = {name: kwargs.pop(name) for name in _OF_ALL_LAYERS if kwargs.get(name) is not None}
        super().__init__(**base)
        self._arguments = {
            name: value
            for name, value in kwargs.items()
            if name not in (*_OF_ALL_LAYERS, "axis")  # the last one alone
        }
        self._initializers = {
            argument.removesuffix("_initializer"): initializer_of(kwargs.pop(argument))
            for argument in list(kwargs)
            if argument.endswith("_initializer") and argument.removesuffix("_initializer") in self._names.values()
        }
        self._after = None
        arguments = {name: value for name, value in kwargs.items() if name in own}
        self._check({name: value for name, value in kwargs.items() if name not in own})
        if issubclass(self.core, layers.Recurrent):
            for name in arguments.keys() & {"activation", "recurrent_activation"}:
                arguments[name] = gate_activation(name, arguments[name])
        elif "activation" in arguments:
            arguments["activation"], self._after = core_activation(arguments["activation"])
        fitting = {name: _fitting(name, value, self._axes) for name, value in arguments.items()}
        try:
            self._layer: layers.Layer = self.core(**fitting)
        except TypeError as error:  # an argument of another type, or none where there must be one
            raise ProgramTypeError(f"{type(self).__name__}: {error}, got {fitting}") from None
        self._key: Any = self._layer
        self._variables: dict[str, NamedVariable] = {}

    def _check(self, others: dict[str, Any]) -> None:
        for name, value in others.items():
            if name in _ONLY:
                if not any(value is item or (value == item and type(value) is type(item)) for item in _ONLY[name]):
                    raise UnsupportedProgramError(
                        f"{type(self).__name__}: {name} is simulated as {_ONLY[name][0]!r} alone, got {value!r}"
                    )
            elif name.endswith(("_regularizer", "_constraint")):
                if value is not None:
                    raise UnsupportedProgramError(f"{type(self).__name__}: {name} is not simulated, got {value!r}")
            elif name not in _WITHOUT_EFFECT and name not in _OF_ALL_LAYERS:
                raise ProgramTypeError(f"{type(self).__name__}() got an unexpected keyword argument {name!r}")

    def build(self, input_shape: Any) -> None:
        """Make the weights; raises ModelError for an input that the layer does not take."""
        shape, dtype = tuple(input_shape[1:]), np.dtype(self._weight_dtype)
        self._layer.output_shape(shape)
        for own, axes in self._forms(shape).items():
            draw = partial(self._drawn_one, own, shape, dtype)
            self._keep(self._names[own], axes, dtype, draw, own not in self._untrained)
        self.built = True

    #: The core's names of variables that no optimizer trains.
    _untrained: ClassVar[frozenset[str]] = frozenset()

    def _own_weights(self) -> Iterable[NamedVariable]:
        """Return its weights; of a layer in no model the variables that it has asked for in stages."""
        return [*(self._weights or self._variables.values()), *self._attribute_variables()]

    def get_config(self) -> dict[str, Any]:
        """Return its arguments."""
        own = {name: getattr(self._layer, name) for name in _arguments_of(self.core)}
        own |= {name: keras_name(core) for name, core in own.items() if name.endswith("activation")}
        options = {_INITIALIZERS.get(name, name): described(value) for name, value in self._arguments.items()}
        return super().get_config() | own | options

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:
        """Return a layer of what ``get_config`` gave; raises as making one does."""
        arguments = dict(config)
        for name, value in config.items():
            if name.endswith("_initializer"):
                arguments[name] = revived("initializer", value)
            elif name == "activation" and isinstance(value, str):
                arguments[name] = custom_objects().get(value, value)
        return cls(**arguments)

    def copied(self) -> Layer:
        """Return a layer with the same arguments, and none of the weights and calls."""
        functions = {
            argument.__name__: argument for argument in self._arguments.values() if hasattr(argument, "__name__")
        }
        with custom_object_scope(functions):
            return super().copied()

    def __getattr__(self, name: str) -> Any:
        """Return a weight by its own name, as ``kernel``, or an argument of the layer's, as ``units``."""
        if isinstance(getattr(type(self), name, None), property):
            return object.__getattribute__(self, name)  # which says why it has no value
        stored = self.__dict__
        for item in stored.get("_weights", ()):
            if item.own_name == name:
                return item
        if name == "activation" and "_after" in stored and hasattr(stored.get("_layer"), name):
            return stored["_after"] or activations.get(keras_name(stored["_layer"].activation))
        if "_layer" in stored and name in _arguments_of(self.core):
            return getattr(stored["_layer"], name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _forms(self, shape: Shape) -> dict[str, Shape]:
        """Return the shape of each variable for an input of a shape, by the core's names."""
        return self._layer.parameter_shapes(shape)

    def __call__(self, inputs: Any, *args: Any, training: bool | None = None, **kwargs: Any) -> Any:
        """Return what the layer gives for arrays in a stage, or for symbolic tensors.

        Raises UnsupportedProgramError for states and masks that it does not take, ProgramTypeError for an argument
        that there is not.
        """
        for name, value in kwargs.items():
            if value is None or name in inspect.signature(self.call).parameters:
                continue
            if name in ("initial_state", "mask"):
                raise UnsupportedProgramError(f"{type(self).__name__}: a call's {name} is simulated as None alone")
            raise ProgramTypeError(f"{type(self).__name__}.call() got an unexpected keyword argument {name!r}")
        return super().__call__(inputs, *args, training=training, **kwargs)

    def call(self, inputs: Any, training: bool | None = None, **_: Any) -> Any:
        """Return the layer's output for ``inputs`` (batch, ...), with its weights.

        ``training`` has no effect, unless a layer says otherwise: it computes the same in training and in inference.

        Raises ProgramError for an input of another shape than the one that these were made for.
        """
        x = tensor(inputs)
        return self._output_of(x, self._of_model(x), training)

    def _of_model(self, x: Any) -> dict[str, NamedVariable]:
        """Return the weights by the core's names; raises ProgramError where they were made for another input."""
        own, weights = self._names, {weight.own_name: weight for weight in self._weights}
        shapes = self._forms(tuple(x.shape[1:]))
        if any(weights[own[name]].shape != tuple(shape) for name, shape in shapes.items()):
            raise ProgramError(
                f'Input 0 of layer "{self.name}" is incompatible with the layer: expected the shape that its weights '
                f"{[item.shape for item in weights.values()]} were made for, received input with shape "
                f"{(None, *x.shape[1:])}"
            )
        return {name: weights[own[name]] for name in shapes}

    def _run(self, inputs: Any, *args: Any, training: bool | None, **kwargs: Any) -> Any:
        """Return the layer's output for ``inputs`` (batch, ...).

        Raises ModelError outside of a stage and for an input that it does not take; ProgramError for another layer
        of its name in the program.
        """
        if self.in_model or self.built or is_trying():
            return super()._run(inputs, *args, training=training, **kwargs)
        core_functions.check_inside(self.name)
        x = tensor(inputs)
        self._layer.output_shape(tuple(x.shape[1:]))
        self._settle()
        return self._output_of(x, self._of_program(x, self.path), training)

    def _gives(self, node: Node) -> KerasTensor:
        """Return the tensor of a call, in the shape that the layer says."""
        (value,) = node.inputs
        self._dtype = self._dtype or (value.dtype if value.dtype.kind == "f" else None)
        if not self.built:
            self.build(value.shape)
        kind = np.dtype(self._weight_dtype) if self._layer.parameter_shapes(value.sizes) else value.dtype
        return KerasTensor((None, *self._layer.output_shape(value.sizes)), kind, node)

    def _output_of(self, x: Any, variables: Mapping[str, NamedVariable], training: bool | None) -> Any:
        """Return what the layer gives with variables by the core's names, its activation included."""
        y = self._applied(x, variables, self._trains(training))
        if self._sigmoid_waits():
            return Probabilities(y, logistic)
        if self._after is softmax_of:
            return softmax_of_layer(y)
        return y if self._after is None else self._after(y)

    @property
    def _draws(self) -> bool:
        """Whether it drops elements in training."""
        return bool(getattr(self._layer, "rate", 0))

    def _trains(self, training: bool | None) -> bool:
        """Return whether a call trains, by default as the program does.

        Raises UnsupportedProgramError where a call says that it trains and nothing else does, if it would matter.
        """
        here = "" if program_trains() else "in a program that does not train"
        here = here if may_change() else "on the host"
        matters = self._draws or (self._untrained and self._trainable and not may_change())
        if training and here and matters and not is_trying():
            raise UnsupportedProgramError(
                f"{type(self).__name__} {self.path!r}: training=True {here} is not simulated: call it with "
                "training=False, or in a program that trains"
            )
        return may_change() and (program_trains() if training is None else bool(training))

    def _applied(self, x: Any, variables: Mapping[str, NamedVariable], training: bool) -> Any:
        """Return what the core's layer gives, but for a sigmoid that waits; dropout draws where the machine says so."""
        parameters = {
            name: variable.read_value() for name, variable in variables.items() if name not in self._untrained
        }
        of: Any = self._layer
        if self._sigmoid_waits():
            of = replace(of, activation="identity")
        return run(of, x, parameters, self.path, self._position if self.in_model else None)

    def _sigmoid_waits(self) -> bool:
        """Return whether the sigmoid of a model's last layer is left to the loss, which takes the logits behind it."""
        recurs = isinstance(self._layer, layers.Recurrent)  # its activations are those of gates
        return is_last() and not recurs and getattr(self._layer, "activation", None) == "sigmoid"

    def _drawn_one(self, own: str, shape: Shape, dtype: np.dtype[Any]) -> Array:
        return self._drawn(shape, dtype)[own]

    def _drawn(self, shape: Shape, dtype: np.dtype[Any]) -> dict[str, Array]:
        """Return the initial value of each variable, by the core's names."""
        result: dict[str, Array] = {}
        for own, initial in initial_parameters(self._key, shape, dtype, (seed_of(None), self._position)).items():
            result[own] = self._begun(own, initial, len(result))
        return result

    def _begun(self, own: str, initial: Array, number: int) -> Array:
        """Return what a variable begins with: as its initializer says, else ``initial``."""
        chosen = self._initializers.get(self._names[own])
        if isinstance(chosen, Initializer):
            return drawn(chosen, initial.shape, initial.dtype, (seed_of(chosen.seed), self._position, number))
        return initial if chosen is None else np.asarray(chosen(initial.shape), initial.dtype)

    def _of_program(self, x: Any, full: str) -> dict[str, NamedVariable]:
        """Return the variables of a layer that is in no model, which are its own in all programs that call it."""
        dtype = x.dtype if x.dtype.kind == "f" else np.dtype(np.float32)
        result = self._drawn(tuple(x.shape[1:]), np.dtype(dtype))
        return {own: self._variable(f"{full}/{self._names[own]}", own, value) for own, value in result.items()}

    def _variable(self, name: str, own: str, initial: Array) -> NamedVariable:
        variable = self._variables.get(name)
        if variable is None or (variable.shape, variable.dtype) != (initial.shape, initial.dtype):
            trains, shares = own not in self._untrained, scope().reuse is not False
            variable = named_variable(name, initial, trains and self._trainable, shares=shares)
            self._variables[name] = variable
            if not trains:
                self._never_trained.append(variable)
        return variable


@cache  # a layer may be made in every pass
def _arguments_of(core: Any) -> tuple[str, ...]:
    """Return the names of the arguments of a layer of the core."""
    return tuple(field.name for field in fields(core))


def _take_sizes(kwargs: dict[str, Any], own: tuple[str, ...]) -> None:
    """Turn other ways to say the shape of a layer's input into ``input_shape``, where they are no argument of its own.

    An initializer has Keras' name then.
    """
    for name in ("input_dim", "input_length"):
        if name not in own and (size := kwargs.pop(name, None)) is not None:
            kwargs.setdefault("input_shape", (size,))
    for weight, name in _INITIALIZERS.items():
        if name in kwargs:
            kwargs[weight] = kwargs.pop(name)


def _fitting(name: str, value: Any, axes: int) -> Any:
    """Return sizes of windows as the core has them, one for both axes as two; and lists as tuples."""
    if name in ("kernel_size", "strides", "pool_size"):
        if axes == 1 and isinstance(value, list | tuple) and len(value) == 1:
            return value[0]
        if axes == 2 and isinstance(value, int):
            return (value, value)
    return tuple(value) if isinstance(value, list) else value.lower() if name == "padding" else value
