"""Functions of Graphcore's ``reduce_scatter_op``."""

from __future__ import annotations

from typing import Any, Final

from ipusim.api import functions
from ipusim.ipu.cross_replica_ops import check_inside, factor, tensor
from ipusim.ipu.runtime import checks

_ADD: Final = "COLLECTIVE_OP_ADD"
_SQUARE_ADD: Final = "COLLECTIVE_OP_SQUARE_ADD"
#: No reduction: each replica keeps its own part of its own values.
_LOCAL: Final = "COLLECTIVE_OP_LOCAL"
_COMBINATIONS: Final[dict[str, functions.Combination]] = {
    _ADD: "add",
    "COLLECTIVE_OP_MUL": "multiply",
    "COLLECTIVE_OP_MIN": "minimum",
    "COLLECTIVE_OP_MAX": "maximum",
    "COLLECTIVE_OP_LOGICAL_AND": "logical_and",
    "COLLECTIVE_OP_LOGICAL_OR": "logical_or",
    _SQUARE_ADD: "add",
}


def reduce_scatter(x: Any, replication_factor: int, op: str = _ADD, name: str | None = None) -> Any:
    """Return this replica's part of ``x``, of rank 1, reduced over the replicas of a group of so many in a row.

    A part has ceil(elements / replication_factor) elements, zeros behind the end. The logical operations take whole
    numbers and give 1 and 0, without a gradient. Raises ProgramError outside of a stage, for another rank and for
    another operation, ProgramTypeError for what is no tensor of numbers; a factor that does not divide the number of
    replicas is refused when the device is known.
    """
    size = factor("replication_factor", replication_factor)
    if not isinstance(op, str) or op not in (*_COMBINATIONS, _LOCAL):
        checks.wrong_value("op", f"{', '.join(_COMBINATIONS)} or {_LOCAL}", op)
    logical = op.startswith("COLLECTIVE_OP_LOGICAL")
    x = tensor(x, "iu" if logical else "fiu")
    if len(x.shape) != 1:
        checks.wrong_value("x", "a tensor of rank 1", tuple(x.shape))
    check_inside("reduce_scatter")
    if op == _LOCAL:
        return functions.own_chunk(x, size)
    values = x * x if op == _SQUARE_ADD else x
    if size == 1:
        return (values != 0).astype(values.dtype) if logical else values
    return functions.reduce_scatter(values, size, _COMBINATIONS[op])
