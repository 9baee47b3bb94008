"""Map logical IPUs to positions in a device's ladder of rungs (pairs of linked IPUs): selection orders.

The orders are Graphcore's ``SelectionOrder`` enumeration, computed like Graphcore's TensorFlow compiler
(poplar_compiler.cc).
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
    group, position = divmod(index, 4)
    return 4 * group + (0, 1, 3, 2)[position]


def _hoof(index: int, count: int) -> int:
    half = count // 2
    return 2 * index if index < half else count - 1 - 2 * (index - half)


#: By order: the function from logical IPU and number of IPUs to ladder position, counted from the device's first IPU.
ORDERS: Final[dict[str, Callable[[int, int], int]]] = {"ZIGZAG": _zigzag, "SNAKE": _snake, "HOOF": _hoof}


def selection(order: str, count: int) -> tuple[int, ...]:
    """Return the ladder position of each logical IPU in a device of ``count`` IPUs.

    ``order`` is ZIGZAG (natural order), SNAKE (direct links between consecutive IPUs) or HOOF (like SNAKE, and the
    first and last IPU are on the same rung). In a device of several pods, pods are ordered separately. Raises
    DeviceError for another order, or a count other than a power of two.

    >>> selection("HOOF", 8)
    (0, 2, 4, 6, 7, 5, 3, 1)
    """
    if order not in ORDERS:
        raise DeviceError(_unknown_order(order, tuple(ORDERS)))
    if count < 1 or count & (count - 1):
        raise DeviceError(f"expected a device of 1, 2, 4, 8, ... IPUs, got {count}")
    position_of = ORDERS[order]
    pod = min(count, POD_IPUS)
    return tuple(index - index % pod + position_of(index % pod, pod) for index in range(count))


def physical_ipus(physical: Sequence[int], order: str, shards: int) -> tuple[int, ...]:
    """Return the physical IPU of each logical IPU, given a device's ``physical`` IPUs in ascending order.

    A replica takes ``shards`` consecutive IPUs, which are ordered separately (like in Graphcore's compiler), so the
    pipelines of all replicas have equal layouts. Raises DeviceError like :func:`selection`.

    >>> physical_ipus(range(8), "SNAKE", 4)
    (0, 1, 3, 2, 4, 5, 7, 6)
    """
    indices = selection(order, shards)
    return tuple(physical[first + index] for first in range(0, len(physical), shards) for index in indices)


def resolve_order(name: str, mapping: Sequence[int], pipelined: bool) -> tuple[str, str]:
    """Return the selection order for ``name``, and the reason as a sentence.

    AUTO means SNAKE for a pipeline with forward stage i on IPU i throughout, else ZIGZAG (Graphcore's TensorFlow
    compiler, poplar_compiler.cc). ``mapping`` lists the IPUs of stages; ``pipelined`` is False for sharded execution
    and for loops on one IPU. Raises DeviceError for an order unknown to Graphcore.
    """
    if name != "AUTO":
        if name not in ORDERS:
            raise DeviceError(_unknown_order(name, ("AUTO", *ORDERS)))
        return name, f"{name} was asked for."
    if not pipelined:
        return "ZIGZAG", "AUTO takes ZIGZAG because the program is not a pipeline."
    moved_stage = next((stage for stage, ipu in enumerate(mapping) if ipu != stage), None)
    if moved_stage is None:
        return "SNAKE", "AUTO takes SNAKE because every stage of the pipeline sits on the IPU of its own number."
    place = f"on IPU {mapping[moved_stage]}" if mapping[moved_stage] >= 0 else "on several IPUs"
    return "ZIGZAG", f"AUTO takes ZIGZAG because stage {moved_stage} of the pipeline sits {place}."


def _unknown_order(order: str, names: tuple[str, ...]) -> str:
    return f"unknown selection order {order!r}: expected one of {', '.join(names)}{did_you_mean(order, names)}"
