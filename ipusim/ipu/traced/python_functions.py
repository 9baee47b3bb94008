"""Let the host run a program's Python functions in the middle of a stage."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import numpy as np

from ipusim.ipu.graph.node import Node
from ipusim.ipu.graph.registry import PYTHON_FUNCTION_TYPES, Kernel, register
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.traced.operations import HOST_FUNCTIONS

tf = load()
#: Context manager in which TensorFlow runs operations at once.
_EAGER_MODE: Final = import_module("tensorflow.python.eager.context").eager_mode


@register(" ".join(sorted(PYTHON_FUNCTION_TYPES)), effect=True)
def _call(node: Node) -> Kernel:
    """Call the program's function on arrays, or on eager tensors if ``py_function`` added the node."""
    token, dtypes = node.attributes["token"], node.output_types
    function = HOST_FUNCTIONS._funcs[token]

    def run(*values: Any) -> Any:
        if node.type == "EagerPyFunc":
            with _EAGER_MODE():
                outcome = function._func(*map(tf.constant, values))
                arrays = [np.asarray(item) for item in tf.nest.flatten(outcome)]
        else:
            outcome = function(*map(np.asarray, values))
            arrays = list(outcome) if isinstance(outcome, tuple | list) else [outcome]
        return tuple(np.asarray(array, dtype) for array, dtype in zip(arrays, dtypes, strict=False))

    return run
