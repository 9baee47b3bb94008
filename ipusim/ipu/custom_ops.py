"""Functions of Graphcore's ``custom_ops``: a user's own operations.

Where Graphcore takes a compiled library, here stands a file of Python. With ``op_name="Callback"`` it has

- ``Callback(*inputs, attributes)``, which returns an array or several, of NumPy's;
- ``Callback_grad(gradients, outputs, inputs, attributes)``, which returns the gradients of the inputs, if it trains;
  with ``separate_gradients`` it takes the place of an input before these, and returns the gradient of that;
- ``Callback_cost(*inputs)``, which returns cycles as ``{"forward": 1000, "backward": 2000}``, of the IPU's clock also
  where the host takes them. Without it a pass counts an operation for each element that it writes, and reads and
  writes each array once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ipusim.api import functions
from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.user_operations import Expression, UserOperation, library_of, outputs_of
from ipusim.ipu.tensorflow.array_functions import stop_gradient, tensor


def codelet_expression_op(vertex_expression: Callable[..., Any], *args: Any) -> Any:
    """Return a function of the elements of tensors, in one compute set; no gradient goes back through it.

    Raises ProgramTypeError for what is no function of tensors; ModelError for what it raises, and in training for a
    gradient that would go back.
    """
    checks.function("vertex_expression", vertex_expression)
    if not args:
        checks.wrong_value("args", "at least one tensor", args)
    return functions.operate(Expression(vertex_expression), *map(tensor, args))[0]


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
    """Return the results of a user's function on the host, of the file ``library_path`` (see above).

    ``outs`` says their ``output_types`` and ``output_shapes``. It is as in a block of
    ``scopes.outside_compilation_scope``: inputs and results, and their gradients, go over the host's streams, and what
    ``Callback_cost`` says is the host's time, in cycles of the IPU's clock. Raises UnsupportedProgramError for a
    compiled library, ProgramError and ProgramTypeError for other arguments that cannot be, ModelError for a file or
    functions that are not as above.
    """
    rest = separate_gradients, inputs_with_gradients, attributes, gradient_attributes
    with functions.on_host(checks.text("name", name)):
        return precompiled_user_op(inputs, library_path, "", outs, name, op_name, *rest)


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
    """Return the results of a user's function on the IPU; else as :func:`cpu_user_operation`.

    ``gp_path`` is refused: codelets that are compiled do not run on simulated IPUs.

    Raises UnsupportedProgramError for codelets too, as that does for a library.
    """
    if gp_path:
        raise UnsupportedProgramError(
            f"gp_path: expected no codelets, as compiled ones do not run on simulated IPUs, got {gp_path!r}"
        )
    checks.instance("inputs", inputs, list | tuple, "a list of tensors")
    values = list(map(tensor, inputs))
    places: tuple[int, ...] | None = None
    if inputs_with_gradients is not None:
        places = tuple(checks.whole("inputs_with_gradients", place) for place in inputs_with_gradients)
        if max(places, default=0) >= len(values):
            checks.wrong_value("inputs_with_gradients", f"places of {len(values)} inputs", places)
        values = [item if at in places else stop_gradient(item) for at, item in enumerate(values)]
    module = library_of(checks.text("library_path", library_path))
    called = checks.text("op_name", op_name)
    if not callable(getattr(module, called, None)):
        known = sorted(key for key, value in vars(module).items() if callable(value) and not key.startswith("_"))
        checks.wrong_value("op_name", f"one of the functions {', '.join(known)} of {library_path}", called)
    operation = UserOperation(
        checks.text("name", name),
        getattr(module, called),
        getattr(module, f"{called}_grad", None),
        getattr(module, f"{called}_cost", None),
        outputs_of(outs),
        "" if attributes is None else checks.text("attributes", attributes),
        "" if gradient_attributes is None else checks.text("gradient_attributes", gradient_attributes),
        checks.truth("separate_gradients", separate_gradients),
        places,
    )
    return list(functions.operate(operation, *values))
