"""Selection orders: which ladder position of a device each logical IPU gets.

The orders are those of Graphcore's ``SelectionOrder`` enumeration, computed as
Graphcore's TensorFlow compiler does (poplar_compiler.cc).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ipusim.base.errors import DeviceError
from ipusim.base.near_names import did_you_mean
from ipusim.hardware.pods import POD_IPUS


def _zigzag(index: int, count: int) -> int:  # noqa: ARG001
    return index


def _snake(index: int, count: int) -> int:
    if count < 4:
        return index
    group, rest = divmod(index, 4)
    return 4 * group + (0, 1, 3, 2)[rest]


def _hoof(index: int, count: int) -> int:
    half = count // 2
    return 2 * index if index < half else count - 1 - 2 * (index - half)


#: Each order: logical IPU and number of IPUs to ladder position, counted from the device's first IPU.
ORDERS: Final[dict[str, Callable[[int, int], int]]] = {"ZIGZAG": _zigzag, "SNAKE": _snake, "HOOF": _hoof}


def selection(order: str, count: int) -> tuple[int, ...]:
    """Return the ladder position of each logical IPU of a device of ``count`` IPUs.

    ``order`` is ZIGZAG (the natural order), SNAKE (each consecutive pair directly
    linked) or HOOF (the same, and the last and first on one rung); in a device of
    several pods each pod is ordered by itself. Raises DeviceError for another
    order, or a count that is no power of two.

    >>> selection("HOOF", 8)
    (0, 2, 4, 6, 7, 5, 3, 1)
    """
    if order not in ORDERS:
        raise DeviceError(_unknown_order(order, tuple(ORDERS)))
    if count < 1 or count & (count - 1):
        raise DeviceError(f"expected a device of 1, 2, 4, 8, ... IPUs, got {count}")
    ipu_at = ORDERS[order]
    pod = min(count, POD_IPUS)
    return tuple(index - index % pod + ipu_at(index % pod, pod) for index in range(count))


def laid_out(physical: Sequence[int], order: str, shards: int) -> tuple[int, ...]:
    """Return the physical IPU of each logical one on the ``physical`` IPUs of a device, in ladder order.

    Each replica takes ``shards`` consecutive ones, which are ordered by themselves, so that the
    pipelines of all replicas lie alike (Graphcore's compiler orders the shards of one replica).
    Raises DeviceError as :func:`selection` does.

    >>> laid_out(range(8), "SNAKE", 4)
    (0, 1, 3, 2, 4, 5, 7, 6)
    """
    own = selection(order, shards)
    return tuple(physical[first + index] for first in range(0, len(physical), shards) for index in own)


def resolve_order(requested: str, mapping: Sequence[int], pipelined: bool) -> tuple[str, str]:
    """Return the selection order that ``requested`` stands for, and why, as a sentence.

    AUTO is SNAKE for a pipeline whose forward stage i sits on IPU i for every i,
    else ZIGZAG (Graphcore's TensorFlow compiler, poplar_compiler.cc). ``mapping``
    is the IPU of each stage; ``pipelined`` is false for sharded execution and for
    single programs. Raises DeviceError for an order that Graphcore does not have.
    """
    if requested != "AUTO":
        if requested not in ORDERS:
            raise DeviceError(_unknown_order(requested, ("AUTO", *ORDERS)))
        return requested, f"{requested} was asked for."
    if not pipelined:
        return "ZIGZAG", "AUTO takes ZIGZAG because the program is not a pipeline."
    moved = next((stage for stage, ipu in enumerate(mapping) if ipu != stage), None)
    if moved is None:
        return "SNAKE", "AUTO takes SNAKE because every stage of the pipeline sits on the IPU of its own number."
    where = f"on IPU {mapping[moved]}" if mapping[moved] >= 0 else "on several IPUs"
    return "ZIGZAG", f"AUTO takes ZIGZAG because stage {moved} of the pipeline sits {where}."


def _unknown_order(order: str, known: tuple[str, ...]) -> str:
    return f"unknown selection order {order!r}: expected one of {', '.join(known)}{did_you_mean(order, known)}"
