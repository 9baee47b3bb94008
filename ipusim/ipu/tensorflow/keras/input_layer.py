"""Inputs of Keras' models: symbolic tensors that no layer gives, and the layer that stands for one."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ipusim.ipu.runtime import checks
from ipusim.ipu.tensorflow.keras.layer import Layer
from ipusim.ipu.tensorflow.keras.symbolic import KerasTensor


def Input(  # noqa: N802 - Keras' name
    shape: Any = None,
    batch_size: int | None = None,
    name: str | None = None,
    dtype: Any = None,
    batch_shape: Any = None,
    **kwargs: Any,
) -> KerasTensor:
    """Return a symbolic tensor (batch, *shape) that a model can begin with; the data says how large the batch is.

    Raises ProgramTypeError for arguments of other types or that there are not, ProgramError for no shape or one that
    is not known in full.
    """
    for argument in kwargs:
        checks.wrong_type("Input", "shape, batch_size, name, dtype and batch_shape", argument)
    if batch_size is not None:
        checks.whole("batch_size", batch_size, 1)
    if batch_shape is not None:
        shape = tuple(batch_shape)[1:]
    if shape is None:
        checks.wrong_value("shape", "sizes of all axes but the batch", shape)
    axes: Sequence[Any] = shape if isinstance(shape, list | tuple) else (shape,)
    if None in axes:
        checks.wrong_value("shape", "sizes of all axes but the batch, as programs for IPUs have", shape)
    sizes = tuple(checks.whole("shape", axis, 1) for axis in axes)
    kind = np.dtype(np.float32) if dtype is None else checks.dtype("dtype", dtype, "biuf")
    return KerasTensor((None, *sizes), kind, name="" if name is None else checks.text("name", name))


class InputLayer(Layer):
    """Keras ``InputLayer``: the input of a Sequential model among its layers."""

    is_plain = True

    def __init__(
        self, input_shape: Any = None, batch_size: int | None = None, dtype: Any = None, **kwargs: Any
    ) -> None:
        """Take the shape without the batch; raises as Input does."""
        shape = kwargs.pop("batch_input_shape", None)
        super().__init__(**kwargs)
        self.tensor = Input(input_shape, batch_size, self._given_name, dtype, shape)

    def get_config(self) -> dict[str, Any]:
        """Return its shape with the batch, dtype and name."""
        shape, dtype = self.tensor.shape, self.tensor.dtype.name
        return {"batch_input_shape": shape, "dtype": dtype, "name": self.name}

    @property
    def input(self) -> Any:
        """The tensor that it stands for."""
        return self.tensor

    output = input


_BINARY: Final = ("add", "sub", "mul", "truediv", "pow", "matmul")
_OTHERS: Final = ("neg", "abs", "getitem")


class Operator(Layer):
    """An operator of Python as a layer, by the name that it has in the module ``operator``."""

    def __init__(self, operator: str, **kwargs: Any) -> None:
        """Take the operator's name, which is that of the layer's kind too."""
        super().__init__(**kwargs)
        self.kind = operator  # type: ignore[misc]
        self._function = _FUNCTIONS[operator]

    def call(self, inputs: Any, *args: Any) -> Any:
        """Return what the operator gives."""
        return self._function(inputs, *args)

    def get_config(self) -> dict[str, Any]:
        """Return the operator's name too."""
        return super().get_config() | {"operator": self.kind}


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {name: getattr(operator, name) for name in (*_BINARY, *_OTHERS)}


def _method(name: str, reflected: bool = False) -> Callable[..., Any]:
    def method(self: KerasTensor, *others: Any) -> Any:
        return Operator(name)(*(reversed((self, *others)) if reflected else (self, *others)))

    return method


for _name in _BINARY:
    setattr(KerasTensor, f"__{_name}__", _method(_name))
    setattr(KerasTensor, f"__r{_name}__", _method(_name, reflected=True))
for _name in _OTHERS:
    setattr(KerasTensor, f"__{_name}__", _method(_name))
