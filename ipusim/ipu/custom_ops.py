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
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from ipusim.errors import UnsupportedProgramError
from ipusim.ipu import checks
from ipusim.ipu.operations.users import Expression, UserOperation
from ipusim.ipu.tensorflow.array_functions import stop_gradient, tensor
from ipusim.model.functions.operation_call import operate
from ipusim.model.functions.outside import outside
from ipusim.model.functions.python_file import load_file


def codelet_expression_op(vertex_expression: Callable[..., Any], *args: Any) -> Any:
    """Return a function of the elements of tensors, in one compute set; no gradient goes back through it.

    Raises ProgramTypeError for what is no function of tensors; ModelError for what it raises, and in training for a
    gradient that would go back.
    """
    if not callable(vertex_expression):
        checks.wrong_type("vertex_expression", "a function", vertex_expression)
    if not args:
        checks.wrong_value("args", "at least one tensor", args)
    return operate(Expression(vertex_expression), *map(tensor, args))[0]


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
    given = separate_gradients, inputs_with_gradients, attributes, gradient_attributes
    with outside(checks.text("name", name)):
        return _operation(inputs, library_path, outs, name, op_name, *given)


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

    Raises UnsupportedProgramError for codelets too, as that does for a library.
    """
    if gp_path:
        raise UnsupportedProgramError(
            f"gp_path: expected no codelets, as compiled ones do not run on simulated IPUs, got {gp_path!r}"
        )
    given = separate_gradients, inputs_with_gradients, attributes, gradient_attributes
    return _operation(inputs, library_path, outs, name, op_name, *given)


def _operation(
    inputs: Any,
    library: Any,
    outs: Any,
    name: Any,
    op_name: Any,
    separate: Any,
    learns: Any,
    attributes: Any,
    gradient_attributes: Any,
) -> list[Any]:
    if not isinstance(inputs, list | tuple):
        checks.wrong_type("inputs", "a list of tensors", inputs)
    given = list(map(tensor, inputs))
    places = None if learns is None else tuple(checks.whole("inputs_with_gradients", each) for each in learns)
    if places is not None:
        if max(places, default=0) >= len(given):
            checks.wrong_value("inputs_with_gradients", f"places of {len(given)} inputs", places)
        given = [each if at in places else stop_gradient(each) for at, each in enumerate(given)]
    module = _library(checks.text("library_path", library))
    called = checks.text("op_name", op_name)
    if not callable(getattr(module, called, None)):
        known = sorted(key for key, value in vars(module).items() if callable(value) and not key.startswith("_"))
        checks.wrong_value("op_name", f"one of the functions {', '.join(known)} of {library}", called)
    operation = UserOperation(
        checks.text("name", name),
        getattr(module, called),
        getattr(module, f"{called}_grad", None),
        getattr(module, f"{called}_cost", None),
        _outputs(outs),
        "" if attributes is None else checks.text("attributes", attributes),
        "" if gradient_attributes is None else checks.text("gradient_attributes", gradient_attributes),
        checks.truth("separate_gradients", separate),
        places,
    )
    return list(operate(operation, *given))


def _outputs(outs: Any) -> tuple[Any, ...]:
    if outs is None:
        return ()
    if not isinstance(outs, dict) or outs.keys() != {"output_types", "output_shapes"}:
        checks.wrong_type("outs", "a dictionary of output_types and output_shapes", outs)
    types, shapes = outs["output_types"], outs["output_shapes"]
    if not isinstance(types, list | tuple) or not isinstance(shapes, list | tuple) or len(types) != len(shapes):
        checks.wrong_value("outs", "as many types as shapes", outs)
    return tuple(
        (checks.dtype("output_types", kind, "biuf"), tuple(checks.whole("output_shapes", axis) for axis in shape))
        for kind, shape in zip(types, shapes, strict=True)
    )


def _library(library: str) -> ModuleType:
    path = Path(library)
    if path.suffix != ".py":
        raise UnsupportedProgramError(
            "library_path: expected a file of Python with the operation's functions, as compiled libraries do not run "
            f"on simulated IPUs, got {library!r}"
        )
    changed = path.stat().st_mtime_ns if path.exists() else 0
    return _loaded(library, path.absolute(), changed)


@lru_cache(maxsize=64)
def _loaded(library: str, path: Path, _changed: int) -> ModuleType:
    """Run a file once as long as it is the same: a stage's function asks for it in every micro-batch."""
    return load_file(library, path)[0]
