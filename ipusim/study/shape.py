"""A Plan from the few words of the command line, with no scenario."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from ipusim.errors import CountError, OptionError
from ipusim.pipeline.grid import parse_mapping
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PlanShape
from ipusim.pipeline.rules import check_mapping, nearest_counts
from ipusim.runs.problems import show
from ipusim.schedules.features import Feature
from ipusim.schedules.registry import find

#: Operations above which a grid is no longer something to read.
_MOST_OPERATIONS: Final = 1_000_000
#: Stages, and IPUs, of the largest grid: four times those of the largest machine.
_MOST_STAGES: Final = 1024
_IPU: Final = re.compile(r"[0-9]{1,4}")


def plan_for(
    schedule: str, stages: int | None, count: int | None, mapping: str | None, inference: bool, recompute: bool
) -> Plan:
    """Lay out ``schedule`` for that many stages, or for a mapping such as ``0,1,0``; two stages by default.

    Concurrent stages share a position: ``0,1+2,3``.

    Raises ProgramError for a schedule, mapping or number of stages that do not
    fit, CountError, with the nearest legal counts, for the count, and OptionError for
    a mapping that is none and for more than a grid can show.
    """
    found = find(schedule)
    ipus, sizes = _mapping(mapping, stages, schedule)
    shape = PlanShape(
        mapping=ipus, micro_batches=1, training=not inference, recompute=recompute and not inference, sizes=sizes
    )
    overlap = found.multiple(shape)
    count = overlap if count is None else count
    if abs(count) * shape.steps > _MOST_OPERATIONS:
        raise OptionError(
            "count",
            f"expected at most {_MOST_OPERATIONS} operations, more than anybody reads in a grid, "
            f"got {show(count)} x {shape.steps}",
        )
    try:
        return found.plan(replace(shape, micro_batches=count))
    except CountError as error:
        legal = " or ".join(map(str, nearest_counts(count, overlap)))
        raise CountError(f"{error} Nearest legal counts: {legal}.") from None


def _mapping(text: str | None, stages: int | None, schedule: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if text is None:
        ipus = tuple(range(2 if stages is None else stages))
        return (ipus if Feature.SEVERAL_IPUS in find(schedule).supports else (0,) * len(ipus)), ()
    words = text.replace("+", ",").split(",")
    if not all(_IPU.fullmatch(word.strip()) and int(word) < _MOST_STAGES for word in words):
        raise OptionError(
            "mapping", f"expected IPUs below {_MOST_STAGES}, separated by commas, such as 0,1,0, got {show(text)}"
        )
    if len(words) > _MOST_STAGES:  # as for a number of stages
        raise OptionError("mapping", f"expected at most {_MOST_STAGES} stages, got {len(words)}")
    positions = text.count(",") + 1
    if stages is not None:
        check_mapping(positions, stages)
    return parse_mapping(text)
