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

    def call(self, inputs: Any, *args: Any) -> Any:
        """Return what the function gives."""
        return self._function(inputs, *args)


def _method(name: str, function: Callable[..., Any], reflected: bool = False) -> Callable[..., Any]:
    def method(self: KerasTensor, *others: Any) -> Any:
        return Operator(name, function)(*(reversed((self, *others)) if reflected else (self, *others)))

    return method


for _name in ("add", "sub", "mul", "truediv", "pow", "matmul"):
    setattr(KerasTensor, f"__{_name}__", _method(_name, getattr(operator, _name)))
    setattr(KerasTensor, f"__r{_name}__", _method(_name, getattr(operator, _name), reflected=True))
for _name in ("neg", "abs", "getitem"):
    setattr(KerasTensor, f"__{_name}__", _method(_name, getattr(operator, _name)))
