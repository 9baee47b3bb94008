"""Run a user's own operations on the IPU or the host: Graphcore's ``custom_ops``.

Graphcore takes a compiled library; ipusim takes a Python file. With ``op_name="Callback"`` the file contains

- ``Callback(*inputs, attributes)``, which returns NumPy arrays, or a single array;
- ``Callback_grad(gradients, outputs, inputs, attributes)``, required for training, which returns the gradients of the
  inputs. With ``separate_gradients`` the index of an input comes first, and the function returns its gradient;
- ``Callback_cost(*inputs)``, optional, which returns cycles of the IPU's clock as ``{"forward": 1000, "backward":
  2000}``, for operations on the host as well. By default a pass counts one operation per element written, and reads
  and writes every array once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.user_operations import Expression, UserOperation, library_of, outputs_of
from ipusim.ipu.scopes import outside_compilation_scope
from ipusim.ipu.traced.operations import operate

tf = load()


def codelet_expression_op(vertex_expression: Callable[..., Any], *args: Any) -> Any:
    """Return an elementwise function of tensors, computed in one operation without gradient.

    Args:
        vertex_expression: function of an array per tensor, which returns an array of the same shape.
        args: the tensors.

    Raises:
        ProgramTypeError: unless vertex_expression is a function.
        ProgramError: if there are no tensors.
    """
    checks.function("vertex_expression", vertex_expression)
    if not args:
        checks.wrong_value("args", "at least one tensor", args)
    tensors = [tf.convert_to_tensor(value) for value in args]
    shape = np.broadcast_shapes(*(tuple(tensor.shape.as_list()) for tensor in tensors))
    (result,) = operate(Expression(vertex_expression), tensors, [(tensors[0].dtype, shape)], "codelet_expression")
    return result


def cpu_user_operation(
    inputs: Any,
    library_path: str,
    outs: dict[str, Any] | None = None,
    name: str = "UserOp",
    op_name: str = "Callback",
    separate_gradients: bool = False,
    inputs_with_gradients: Sequence[int] | None = None,
    attributes: str | None = None,
    gradient_attributes: str | None = None,
) -> list[Any]:
    """Run a user's function on the host, as in a block of ``outside_compilation_scope``.

    Args:
        inputs: list of tensors.
        library_path: Python file with the function; see the module's description.
        outs: ``output_types`` and ``output_shapes`` of the results.
        name: name of the operation.
        op_name: name of the function.
        separate_gradients: whether the gradient function is called once for every input.
        inputs_with_gradients: indices of inputs with gradients; by default all.
        attributes, gradient_attributes: texts passed to the function and to the gradient function.

    Raises:
        UnsupportedProgramError: if library_path is a compiled library.
        ProgramError: if another argument is not valid.
        ProgramTypeError: if another argument has a wrong type.
        ModelError: if the file or its functions do not have the expected form.
    """
    options = separate_gradients, inputs_with_gradients, attributes, gradient_attributes
    with outside_compilation_scope(checks.text("name", name)):
        return precompiled_user_op(inputs, library_path, "", outs, name, op_name, *options)


def precompiled_user_op(
    inputs: Any,
    library_path: str,
    gp_path: str = "",
    outs: dict[str, Any] | None = None,
    name: str = "UserOp",
    op_name: str = "Build",
    separate_gradients: bool = False,
    inputs_with_gradients: Sequence[int] | None = None,
    attributes: str | None = None,
    gradient_attributes: str | None = None,
) -> list[Any]:
    """Run a user's function on the IPU; see :func:`cpu_user_operation`.

    Args:
        inputs, library_path, outs, name, op_name: see :func:`cpu_user_operation`.
        gp_path: refused: compiled codelets do not run on simulated IPUs.
        separate_gradients, inputs_with_gradients, attributes, gradient_attributes: see :func:`cpu_user_operation`.
    """
    if gp_path:
        raise UnsupportedProgramError(
            f"gp_path: expected no codelets, because compiled ones do not run on simulated IPUs, got {gp_path!r}"
        )
    checks.instance("inputs", inputs, list | tuple, "a list of tensors")
    values = [tf.convert_to_tensor(value) for value in inputs]
    positions: tuple[int, ...] | None = None
    if inputs_with_gradients is not None:
        positions = tuple(checks.whole("inputs_with_gradients", position) for position in inputs_with_gradients)
        if max(positions, default=0) >= len(values):
            checks.wrong_value("inputs_with_gradients", f"places of {len(values)} inputs", positions)
        values = [
            tensor if position in positions else tf.stop_gradient(tensor) for position, tensor in enumerate(values)
        ]
    module = library_of(checks.text("library_path", library_path))
    function_name = checks.text("op_name", op_name)
    if not callable(getattr(module, function_name, None)):
        function_names = sorted(
            key for key, value in vars(module).items() if callable(value) and not key.startswith("_")
        )
        checks.wrong_value(
            "op_name", f"one of the functions {', '.join(function_names)} of {library_path}", function_name
        )
    outputs = outputs_of(_with_arrays(outs))
    operation = UserOperation(
        checks.text("name", name),
        getattr(module, function_name),
        getattr(module, f"{function_name}_grad", None),
        getattr(module, f"{function_name}_cost", None),
        outputs,
        "" if attributes is None else checks.text("attributes", attributes),
        "" if gradient_attributes is None else checks.text("gradient_attributes", gradient_attributes),
        checks.truth("separate_gradients", separate_gradients),
        positions,
    )
    return operate(operation, values, outputs, name or "UserOp")


def _with_arrays(outs: Any) -> Any:
    """Return ``outs`` with NumPy dtypes in place of TensorFlow's, and with shapes as lists."""
    if not isinstance(outs, dict) or not all(isinstance(value, list | tuple) for value in outs.values()):
        return outs
    description = dict(outs)
    if "output_types" in outs:
        kinds = outs["output_types"]
        description["output_types"] = [kind.as_numpy_dtype if isinstance(kind, tf.DType) else kind for kind in kinds]
    if "output_shapes" in outs:
        shapes = outs["output_shapes"]
        description["output_shapes"] = [
            shape.as_list() if isinstance(shape, tf.TensorShape) else shape for shape in shapes
        ]
    return description
