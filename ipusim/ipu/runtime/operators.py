"""Python's operators, for what stands in the place of TensorFlow's tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ipusim.ipu.runtime.small_integers import truediv


def give_operators(kind: type, call: Callable[..., Any]) -> None:
    """Give a class Python's operators, each of which is ``call`` of the operator's function and the operands."""

    def method(name: str, *, reflected: bool = False) -> Callable[..., Any]:
        function = truediv if name == "truediv" else getattr(operator, name)
        return lambda *operands: call(function, *(reversed(operands) if reflected else operands))

    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"):
        setattr(kind, f"__{name}__", method(name))
        setattr(kind, f"__r{name}__", method(name, reflected=True))
    for name in ("lt", "le", "gt", "ge", "neg", "abs"):
        setattr(kind, f"__{name}__", method(name))
