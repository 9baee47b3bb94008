"""Register a user's function from shape to Order as a schedule, by a decorator."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar, overload

from ipusim.base.errors import ProgramError, ProgramTypeError
from ipusim.pipeline.order import Order
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.features import PLAIN, Feature
from ipusim.schedules.registry import any_count, register
from ipusim.schedules.schedule import Schedule

_Member = TypeVar("_Member", Sync, Feature)
_Rule = Callable[[PlanShape], Order]


@overload
def schedule(function: _Rule, /) -> Schedule: ...


@overload
def schedule(
    *,
    name: str = ...,
    summary: str = ...,
    multiple: Callable[[PlanShape], int] = ...,
    syncs: Collection[Sync | str] = ...,
    supports: Collection[Feature | str] = ...,
) -> Callable[[_Rule], Schedule]: ...


def schedule(
    function: _Rule | None = None,
    /,
    *,
    name: str = "",
    summary: str = "",
    multiple: Callable[[PlanShape], int] = any_count,
    syncs: Collection[Sync | str] = (),
    supports: Collection[Feature | str] = PLAIN,
) -> Schedule | Callable[[_Rule], Schedule]:
    """Register a function from a shape to an Order as a schedule; a decorator, with or without options.

    A second definition replaces the first, as a notebook's cell may run again.

    Args:
        function: the function; it raises ProgramError for a refused shape.
        name: name in scenarios; default: name of the function.
        summary: one line for people; default: first line of the function's docstring.
        multiple: returns the number of which legal gradient accumulation counts are multiples; default 1.
        syncs: sync modes, the default first, such as ``("point_to_point",)``; default: both, lock-step first.
        supports: features that the function can lay out, as listed by ``ipusim schedule``.

    Returns:
        The Schedule; called with a shape, it returns the Order.

    Raises:
        ProgramError: for a malformed name, the name of a built-in schedule, and unknown modes or features.
        ProgramTypeError: for an uncallable object.

    Example:
        >>> from ipusim import Order, Shape, schedule
        >>> @schedule
        ... def all_forward_first(shape: Shape) -> Order:
        ...     passes = {
        ...         ipu: [f"{kind}{stage}.{number}" for kind in "FB" for number in range(shape.micro_batches)]
        ...         for stage, ipu in enumerate(shape.mapping)
        ...     }
        ...     return Order.from_passes("all_forward_first", shape, passes)
        >>> all_forward_first(Shape(mapping=(0, 1), micro_batches=4))
        <Order all_forward_first: 16 passes>
    """

    def register_rule(rule: _Rule) -> Schedule:
        if not callable(rule):
            raise ProgramTypeError(f"schedule: expected a function from a shape to an Order, got {rule!r}")
        label = name or getattr(rule, "__name__", "")
        result = Schedule(
            label,
            rule,
            multiple,
            pipelined=True,
            summary=summary or (rule.__doc__ or "").strip().partition("\n")[0] or f"the function {label}",
            supports=frozenset(_members(Feature, supports, "supports")),
            syncs=_members(Sync, syncs or tuple(Sync), "syncs"),
            states_sync=bool(syncs),
        )
        register(result, again=True)
        return result

    return register_rule if function is None else register_rule(function)


def _members(kind: type[_Member], values: Collection[_Member | str], argument: str) -> tuple[_Member, ...]:
    """Return members of a vocabulary by text; raises ProgramError for unknown texts."""
    members = [member for value in values for member in kind if member == value]
    if isinstance(values, str) or len(members) < len(values):
        raise ProgramError(f"{argument}: expected some of {', '.join(kind)}, got {values!r}")
    return tuple(members)
