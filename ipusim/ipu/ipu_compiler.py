"""Compile a computation into an operation of the host's graph: Graphcore's ``ipu_compiler``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ipusim.ipu.graph.tensorflow_import import load
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.call_checks import check_takes
from ipusim.ipu.runtime.devices import building_program, device_ordinal
from ipusim.ipu.runtime.program_request import options_of_loop
from ipusim.ipu.traced.computation import compile_computation

tf = load()


@building_program
def compile(computation: Callable[..., Any], inputs: Sequence[Any] | None = None) -> Any:
    """Trace a computation, and return tensors or an operation for a session to run.

    Args:
        computation: a function of the inputs.
        inputs: placeholders, other tensors, or values.

    Returns:
        The operation, if the computation returns no tensors; a tuple with one tensor for a single tensor; a list or
        tuple, like the computation's result, for several tensors; a dictionary of tensors for a dictionary.

    Raises:
        ProgramTypeError: if computation is not a function or inputs is not a list.
        ProgramError: if the computation has several pipelines (Graphcore's message).
    """
    checks.function("computation", computation, "a function of the inputs")
    items = [] if inputs is None else inputs
    checks.instance("inputs", items, list | tuple, "a list of placeholders, other tensors, or values")
    check_takes("computation", computation, items, {})
    outcomes: list[Any] = []

    def trace(*values: Any) -> list[Any]:
        outcomes.append(computation(*values))
        return [] if outcomes[0] is None else tf.nest.flatten(outcomes[0])

    arguments = [tf.convert_to_tensor(item) for item in items]
    results = compile_computation(trace, arguments, options_of_loop(device_ordinal(), None))
    structure = outcomes[0]
    if isinstance(results, tf.Operation):
        return results
    if (
        any(_is_structure(item) for item in structure)
        if isinstance(structure, list | tuple)
        else _is_structure(structure)
    ):
        tensors = iter(results)
        return tf.nest.map_structure(lambda item: item if isinstance(item, tf.Operation) else next(tensors), structure)
    return type(structure)(results) if isinstance(structure, list | tuple) else tuple(results)


def _is_structure(value: Any) -> bool:
    """Tell whether a value holds several values."""
    return isinstance(value, list | tuple | Mapping)
