"""Register and find schedules by name.

A new schedule needs one function from shape to Order and one registration, in this module or from outside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from ipusim.base.errors import ProgramError, ProgramTypeError
from ipusim.base.near_names import did_you_mean, expected_last, list_names
from ipusim.pipeline.order import Order
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules import (
    breadth_first,
    chimera,
    controllable_memory,
    dualpipe,
    gpipe,
    grouped,
    hanayo,
    interleaved,
    interleaved_1f1b,
    one_forward_one_backward,
    popart,
    seq_1f1b,
    serial,
    v_1f1b,
    zbv,
    zero_bubble,
)
from ipusim.schedules.chunks import ipu_count
from ipusim.schedules.features import PLAIN, Feature
from ipusim.schedules.placement import zigzag
from ipusim.schedules.schedule import Schedule

_INTERLEAVED: Final = PLAIN - {Feature.SEVERAL_STAGES} | {Feature.RECOMPUTE_THEN_BACKPROPAGATE}
_POPART: Final = PLAIN - {Feature.SEVERAL_STAGES, Feature.CONCURRENT_STAGES} | {Feature.RECOMPUTE_INTERLEAVED}
_SERIAL: Final = PLAIN | {Feature.RECOMPUTE_INTERLEAVED}
_SHARDED: Final = _SERIAL | {Feature.RETURNING_VALUES}
_GROUPED: Final = _SHARDED | {Feature.OVERLAPPED_IO, Feature.RECOMPUTE_THEN_BACKPROPAGATE}
_SEQUENTIAL: Final = _SHARDED | {Feature.BATCH_SERIALIZATION}
_SINGLE: Final = _SERIAL - {Feature.SEVERAL_IPUS}
#: Features of GPU schedules: recomputation may run inside the backward pass.
_GPU: Final = PLAIN - {Feature.CONCURRENT_STAGES} | {Feature.RECOMPUTE_INTERLEAVED}
_GPU_TRAINING: Final = _GPU - {Feature.INFERENCE}
#: Features of schedules with split backward passes.
_HALVES: Final = _GPU_TRAINING - {Feature.RECOMPUTE_INTERLEAVED}
#: Features of schedules whose authors' code has another order for few micro-batches.
_HALVES_OR_AUTHORS: Final = _HALVES | {Feature.AUTHORS_ORDER}


def any_count(shape: PlanShape) -> int:  # noqa: ARG001 - the signature that every schedule has
    """Return 1: every count is legal, unless the schedule's function refuses it."""
    return 1


def _schedule(
    name: str,
    order: Callable[[PlanShape], Order],
    summary: str,
    supports: frozenset[Feature],
    multiple: Callable[[PlanShape], int] = any_count,
    **other_values: Any,
) -> Schedule:
    """Create a schedule, by default pipelined and with period ``multiple``; ``other_values`` override defaults."""
    return Schedule(
        name,
        order,
        multiple,
        summary=summary,
        supports=supports,
        **{"pipelined": True, "period": multiple, **other_values},
    )


#: Creates a GPU schedule.
_gpu_schedule: Final = partial(_schedule, syncs=(Sync.POINT_TO_POINT, Sync.LOCK_STEP))
#: Creates a schedule with a V placement, two stages per IPU.
_v_schedule: Final = partial(_gpu_schedule, placement=zigzag, per_ipu=2)
#: Creates a schedule with micro-batches from both ends, and two copies of each stage.
_mirrored_schedule: Final = partial(_gpu_schedule, mirrored=True)


_SCHEDULES: Final[dict[str, Schedule]] = {
    schedule.name: schedule
    for schedule in (
        _schedule(
            "grouped",
            grouped.order,
            "in each time-step all backward passes, then all forward passes",
            _GROUPED,
            lambda shape: len(grouped.offsets(shape)),
            shallower="interleaved",
            period=any_count,  # each time-step begins a micro-batch
        ),
        _schedule(
            "interleaved",
            interleaved.order,
            "forward and backward in one time-step, half the activations",
            _INTERLEAVED,
            lambda shape: len(interleaved.offsets(shape)),
        ),
        _schedule(
            "popart",
            popart.order,
            "PopART's pipeline: the last stage's passes in one time-step, any count",
            _POPART,
            shallower="interleaved",
        ),
        _schedule(
            "sequential",
            serial.sequential,
            "one stage at a time",
            _SEQUENTIAL,
            period=lambda shape: shape.serialization,  # number that a stage runs in a row
        ),
        _schedule("sharded", serial.sharded, "no pipeline: through the shards", _SHARDED, pipelined=False),
        _schedule("single", serial.single, "no pipeline: one IPU", _SINGLE, pipelined=False),
        _gpu_schedule("gpipe", gpipe.order, "all forward passes, then all backward passes", _GPU, in_phases=True),
        _gpu_schedule("1f1b", one_forward_one_backward.order, "a forward and a backward in turn", _GPU_TRAINING),
        _gpu_schedule(
            "interleaved_1f1b",
            interleaved_1f1b.order,
            "1f1b with several rounds of stages over the IPUs",
            _GPU_TRAINING | {Feature.GROUPS},
            lambda shape: shape.group_size or ipu_count(shape),
            between=True,
        ),
        _gpu_schedule(
            "eager_1f1b",
            one_forward_one_backward.eager_order,
            "1f1b with a warm-up twice as long, which hides long copies",
            _GPU_TRAINING,
        ),
        _gpu_schedule(
            "seq_1f1b",
            seq_1f1b.order,
            "1f1b of segments of a micro-batch along its sequence, with ramps as short as a segment's",
            _GPU_TRAINING | {Feature.SEGMENTS},
            lambda shape: shape.segments,
            segments=2,
        ),
        _v_schedule(
            "1f1b_v",
            v_1f1b.order,
            "1f1b with two stages on each IPU, over the IPUs and back, and two thirds of the activations",
            _GPU_TRAINING,
        ),
        _v_schedule(
            "hanayo",
            hanayo.order,
            "waves over the IPUs and back, after Hanayo, with ramps as short as a stage",
            _GPU_TRAINING,
            period=ipu_count,
        ),
        _gpu_schedule(
            "breadth_first",
            breadth_first.order,
            "gpipe with several rounds of stages over the IPUs",
            _GPU,
            in_phases=True,
        ),
        _gpu_schedule(
            "zero_bubble_h1",
            zero_bubble.order,
            "1f1b with backward in halves; the weights' half fills idle time",
            _HALVES,
        ),
        _gpu_schedule(
            "zero_bubble_h2",
            zero_bubble.order_h2,
            "zero_bubble_h1 with nearly twice the activations, and almost no bubble",
            _HALVES,
        ),
        _v_schedule(
            "zbv", zbv.order, "zero bubble with two stages on each IPU, over the IPUs and back", _HALVES_OR_AUTHORS
        ),
        _v_schedule(
            "dualpipe_v",
            dualpipe.v_order,
            "zbv with a forward pass of one stage and a backward pass of the other in one slot",
            _HALVES,
        ),
        _mirrored_schedule(
            "dualpipe", dualpipe.order, "dualpipe_v with two copies of each stage", _HALVES, dualpipe.multiple
        ),
        _mirrored_schedule(
            "chimera",
            chimera.order,
            "1f1b from both ends, with two copies of every stage",
            _GPU_TRAINING,
            ipu_count,
        ),
        _v_schedule(
            "v_half",
            controllable_memory.v_half,
            "zbv with half the activations, at the cost of a bubble",
            _HALVES_OR_AUTHORS,
        ),
        _v_schedule(
            "v_min",
            controllable_memory.v_min,
            "zbv with a third of the activations, at the cost of a bubble",
            _HALVES_OR_AUTHORS,
        ),
        _gpu_schedule(
            "gis",
            interleaved_1f1b.gis,
            "interleaved_1f1b with backward in halves, fewer activations and shorter ramps",
            _HALVES,
            ipu_count,
        ),
        _gpu_schedule(
            "gis_h",
            interleaved_1f1b.gis_h,
            "gis in groups of half the micro-batches, with about half the activations of interleaved_1f1b",
            _HALVES,
            interleaved_1f1b.half_of_ipus,
        ),
    )
}

#: Names of built-in schedules.
HOUSE: Final = frozenset(_SCHEDULES)

#: Valid names for scenarios, command line and printed grids.
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def register(schedule: Schedule, *, again: bool = False) -> None:
    """Add a user's schedule under its name; ``again`` replaces an earlier user's schedule of this name.

    Unsupported features are refused at use. Orders must have the requested shape.

    Raises ProgramError for a name that exists or is malformed, or for unknown features or sync modes;
    ProgramTypeError if ``order`` or ``multiple`` cannot be called.
    """
    check(schedule)
    if schedule.name in (HOUSE if again else _SCHEDULES):
        raise ProgramError(f"a schedule named {schedule.name!r} exists already")
    _SCHEDULES[schedule.name] = schedule


def check(schedule: Schedule) -> None:
    """Refuse an invalid user's Schedule.

    Raises:
        ProgramError: for a malformed name, and for unknown features or sync modes.
        ProgramTypeError: if ``order`` or ``multiple`` cannot be called.
    """
    if not isinstance(schedule.name, str) or not _NAME.fullmatch(schedule.name):
        raise ProgramError(
            "name: expected a name of at most 64 lower-case letters, digits, _ and -, the first one a letter, "
            f"got {schedule.name!r}"
        )
    for argument in ("order", "multiple"):
        if not callable(getattr(schedule, argument)):
            raise ProgramTypeError(f"{argument}: expected a function, got {getattr(schedule, argument)!r}")
    for argument, vocabulary in (("supports", Feature), ("syncs", Sync)):
        values = getattr(schedule, argument)
        if not isinstance(values, tuple | frozenset | set) or not set(values) <= set(vocabulary) or not values:
            legal_names = ", ".join(member.name for member in vocabulary)
            raise ProgramError(f"{argument}: expected some of {vocabulary.__name__}'s {legal_names}, got {values!r}")


@contextmanager
def temporarily() -> Iterator[None]:
    """Register schedules only for the block: at its end, restore the schedules registered before it."""
    schedules = dict(_SCHEDULES)
    try:
        yield
    finally:
        _SCHEDULES.clear()
        _SCHEDULES.update(schedules)


def default_serialized() -> Schedule:
    """Return the default schedule of programs with batch serialization."""
    return next(schedule for schedule in _SCHEDULES.values() if Feature.BATCH_SERIALIZATION in schedule.supports)


def names() -> tuple[str, ...]:
    """Return the names of all schedules, in order of registration."""
    return tuple(_SCHEDULES)


def expand_names(words: Sequence[str]) -> list[str]:
    """Return the schedules that ``words`` name; the single word ``all`` means every registered schedule.
    >>> expand_names(["grouped", "mine.py:last"])
    ['grouped', 'mine.py:last']
    """
    return [*_SCHEDULES] if [word.lower() for word in words] == ["all"] else [*words]


def is_built_in(schedule: Schedule) -> bool:
    """Tell whether a schedule is built in; a schedule from a file may have a built-in name."""
    return schedule.name in HOUSE and _SCHEDULES[schedule.name].order is schedule.order


def shallower(schedule: Schedule, shape: PlanShape) -> str:
    """Return the name of a schedule with FIFOs half as deep that supports ``shape``; empty if none supports it."""
    if schedule.shallower:
        try:
            find(schedule.shallower).check(shape)
        except ProgramError:
            return ""
    return schedule.shallower


def find(name: str) -> Schedule:
    """Return a schedule by name, ignoring case; raises ProgramError with known names."""
    schedule = _SCHEDULES.get(name.lower())
    if schedule is None:
        hint = did_you_mean(name, _SCHEDULES, quoted=True)
        raise ProgramError(expected_last(f"got {name!r}", hint, f"a schedule out of {list_names([*_SCHEDULES], name)}"))
    return schedule
