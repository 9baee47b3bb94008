"""What symbolic tensors are computed with where no layer is written: their operators, each a layer of its own."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ipusim.ipu.tensorflow.keras.layer import Layer
from ipusim.ipu.tensorflow.keras.symbolic import KerasTensor


class Operator(Layer):
    """A plain function of tensors as a layer."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        """Take a name for its kind, and the function."""
        super().__init__()
        self.kind = name  # type: ignore[misc]
        self._function = function

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Return what the function gives."""
        return self._function(inputs, *args, **kwargs)

    def __call__(self, *args: Any, training: bool | None = None, **kwargs: Any) -> Any:
        """Return what the function gives."""
        first, *others = args
        return super().__call__(first, *others, training=training, **kwargs)


def _method(name: str, function: Callable[..., Any], reflected: bool = False) -> Callable[..., Any]:
    def method(self: KerasTensor, *others: Any) -> Any:
        return Operator(name, function)(*(reversed((self, *others)) if reflected else (self, *others)))

    return method


def _part(self: KerasTensor, key: Any) -> Any:
    """Return the part of a tensor that ``key`` says."""
    return Operator("getitem", lambda x: x[key])(self)


for _name in ("add", "sub", "mul", "truediv", "pow", "matmul"):
    setattr(KerasTensor, f"__{_name}__", _method(_name, getattr(operator, _name)))
    setattr(KerasTensor, f"__r{_name}__", _method(_name, getattr(operator, _name), reflected=True))
for _name in ("neg", "abs"):
    setattr(KerasTensor, f"__{_name}__", _method(_name, getattr(operator, _name)))
for _name in ("getitem",):
    setattr(KerasTensor, f"__{_name}__", _part)
