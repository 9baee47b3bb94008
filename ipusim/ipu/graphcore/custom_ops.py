"""Custom operations in Graphcore's names, on TensorFlow's graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ipusim.ipu.custom_ops import Expression
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.traced.operations import operate

tf = load()


def codelet_expression_op(vertex_expression: Callable[..., Any], *args: Any) -> Any:
    """Return a function of the elements of tensors, computed in one go; no gradient goes back through it.

    Args:
        vertex_expression: takes an array of each tensor, returns an array of their shape.
        args: the tensors.

    Raises:
        ProgramTypeError: for what is no function.
    """
    checks.function("vertex_expression", vertex_expression)
    tensors = [tf.convert_to_tensor(each) for each in args]
    shape = np.broadcast_shapes(*(tuple(tensor.shape.as_list()) for tensor in tensors))
    (result,) = operate(Expression(vertex_expression), tensors, [(tensors[0].dtype, shape)], "codelet_expression")
    return result
