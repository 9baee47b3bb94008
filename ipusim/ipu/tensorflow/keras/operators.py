"""What symbolic tensors are computed with where no layer is written: their operators, each a layer of its own."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

from ipusim.ipu.tensorflow.keras.layer import Layer
from ipusim.ipu.tensorflow.keras.symbolic import KerasTensor

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
