"""Arguments of functions that replicas call together, checked; Graphcore's compiler refuses them with no text here."""

from __future__ import annotations

from typing import Any, Final

from ipusim.errors import ProgramError
from ipusim.ipu import checks
from ipusim.ipu.host import captured
from ipusim.model.functions.variables import inside
from ipusim.model.profile import StageProfile

#: What Graphcore's collectives take: float16, float32 and int32, here in any width.
_KINDS: Final = "fiu"
#: More than any machine has; a stage is tried before the device is known, and makes room for as many.
_MOST_REPLICAS: Final = 4096


def check_inside(function: str) -> None:
    """Refuse to call ``function`` outside of a stage; raises ProgramError."""
    if not inside():
        raise ProgramError(f"{function} was called outside of a pipeline stage: call it inside its function")


def tensor(x: Any, kinds: str = _KINDS) -> Any:
    """Return ``x`` as an array, or as it is under a trace; Python's own numbers become float32 and int32.

    Raises ProgramTypeError for anything else, and for elements of another of NumPy's ``kinds``, ProgramError for a
    tensor of the host.
    """
    from autograd.tracer import isbox  # noqa: PLC0415 - autograd takes a while to import

    from ipusim.ipu.tensorflow import array_functions  # noqa: PLC0415 - autograd takes a while to import

    found = captured(array_functions.tensor(x, "x"))
    if found.dtype.kind not in kinds:
        numbers = "floating-point or whole numbers" if "f" in kinds else "whole numbers"
        checks.wrong_type("x", f"a tensor of {numbers}", found.dtype.name if isbox(found) else x)
    return found


def factor(name: str, value: Any) -> int:
    """Return the number of replicas in a group; raises ProgramTypeError and ProgramError for what is none."""
    found = checks.whole(name, value, least=1)
    if found > _MOST_REPLICAS:
        checks.wrong_value(name, f"a whole number from 1 to {_MOST_REPLICAS}", found)
    return found


def check_groups(profile: StageProfile, replicas: int) -> None:
    """Refuse groups of replicas that the device cannot be divided into; raises ProgramError."""
    for call in (*profile.forward_collectives, *profile.backward_collectives):
        size = call.size(replicas)
        if call.operation == "all_to_all" and size != replicas:
            expected = f"the number of replicas of the device, {replicas}"
        elif replicas % size:
            expected = f"a number by which that of the device's replicas, {replicas}, can be divided"
        else:
            continue
        name = "replica_group_size" if call.operation == "all_reduce" else "replication_factor"
        raise ProgramError(f"{name}: expected {expected}, got {size} in stage {profile.name!r}")
