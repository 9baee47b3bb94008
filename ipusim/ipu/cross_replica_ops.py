"""Functions of Graphcore's ``cross_replica_ops``, and what checks the arguments of all functions of replicas.

Graphcore's compiler refuses such arguments with no text here.
"""

from __future__ import annotations

from typing import Any, Final

from autograd.tracer import isbox

from ipusim.api import functions
from ipusim.base.errors import ProgramError
from ipusim.ipu.runtime import checks
from ipusim.ipu.runtime.host import captured
from ipusim.ipu.tensorflow import array_functions

#: What Graphcore's collectives take: float16, float32 and int32, here in any width.
_KINDS: Final = "fiu"
#: More than any machine has; a stage is tried before the device is known, and makes room for as many.
_MOST_REPLICAS: Final = 4096


def cross_replica_sum(x: Any, replica_group_size: int | None = None, name: str | None = None) -> Any:
    """Return the sum of ``x`` over all replicas, or over groups of consecutive replicas.

    Its gradient is the cross replica sum of the gradient, as in Graphcore's. Raises ProgramError outside of a stage,
    ProgramTypeError for what is no tensor of numbers; a size that does not divide the number of replicas is refused
    when the device is known.
    """
    size = None if replica_group_size is None else factor("replica_group_size", replica_group_size)
    x = tensor(x)
    check_inside("cross_replica_sum")
    if size == 1:
        return x
    return functions.all_reduce(x, size)


def assume_equal_across_replicas(tensors: Any, inplace: bool = False) -> Any:
    """Return ``tensors`` as they are.

    Without effect: conditions of a simulated program are Python's, and may differ in replicas.
    """
    checks.truth("inplace", inplace)
    return tensors


def check_inside(function: str) -> None:
    """Refuse to call ``function`` outside of a stage; raises ProgramError."""
    if not functions.inside():
        raise ProgramError(f"{function} was called outside of a pipeline stage: call it inside its function")


def tensor(x: Any, kinds: str = _KINDS) -> Any:
    """Return ``x`` as an array, or as it is under a trace; Python's own numbers become float32 and int32.

    Raises ProgramTypeError for anything else, and for elements of another of NumPy's ``kinds``, ProgramError for a
    tensor of the host.
    """
    result = captured(array_functions.tensor(x, "x"))
    if result.dtype.kind not in kinds:
        numbers = "floating-point or whole numbers" if "f" in kinds else "whole numbers"
        checks.wrong_type("x", f"a tensor of {numbers}", result.dtype.name if isbox(result) else x)
    return result


def factor(name: str, value: Any) -> int:
    """Return the size of replica groups; raises ProgramTypeError for what is no number, ProgramError out of range."""
    result = checks.whole(name, value, least=1)
    if result > _MOST_REPLICAS:
        checks.wrong_value(name, f"a whole number from 1 to {_MOST_REPLICAS}", result)
    return result
