"""Collect the data with which a page plays (animates) an execution: boxes, stashes, transfers and steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ipusim.api import SpanKind, Timeline, analysis, timelines
from ipusim.app.render.arrays import Integers
from ipusim.app.render.fold import replicas_alike
from ipusim.app.render.page.columns import pack
from ipusim.app.render.shortened import MICRO_BATCHES, LeftOut, left_out
from ipusim.app.render.trace_flows import drawn_flows
from ipusim.base.errors import OutputError

#: Maximum number of spans that are played in full; longer executions keep their first and last periods.
_MOST_SPANS: Final = 4_000
#: Maximum number of spans that a page plays after repeats are left out.
_MOST_PLAYED_SPANS: Final = 100_000
#: Kinds of boxes on an IPU's lane; waiting leaves the lane empty.
_BOXES: Final = timelines.kinds_with(
    lambda row: row.track is timelines.Track.IPU and row.look is not None and row.part is not timelines.Part.WAIT
)
#: Minimum distance of two steps in point-to-point, as share of the median pass.
_LEAST_STEP_DISTANCE: Final = 0.05


@dataclass(frozen=True, eq=False)
class _PlayedRows:
    """Rows of an execution that a page plays.

    Attributes:
        timeline: run with a row for each played span; rows of other spans may stand for several periods.
        execution: the played execution.
        lanes: IPUs with a lane, from the top down.
        rows: rows of the execution, in order.
        gaps: periods of the execution that are left out.
    """

    timeline: Timeline
    execution: analysis.Execution
    lanes: Integers
    rows: Integers
    gaps: tuple[LeftOut, ...]

    @property
    def passes(self) -> Integers:
        """Rows of passes on the lanes."""
        timeline = self.timeline
        return self.rows[
            timelines.of_kinds(timeline.kind[self.rows], timelines.PASSES)
            & np.isin(timeline.ipu[self.rows], self.lanes)
        ]

    def times(self, cycles: Integers) -> Integers:
        """Convert cycles of the run to cycles from the execution's start."""
        return cycles - self.execution.start

    def lane_of(self, ipus: Integers) -> Integers:
        """Return the lane of each IPU; each must have one."""
        return np.searchsorted(self.lanes, ipus)

    def sum_left_out(self, gap: LeftOut, amounts: Integers) -> int:
        """Return the sum of ``amounts`` (one for each row of the run) over the periods that a gap leaves out."""
        inside = amounts.copy()
        for block in self.timeline.repeats:
            if gap.block.contains(block):
                inside[block.first : block.last] *= block.times
        return (gap.block.times - 1) * int(inside[gap.block.first : gap.block.last].sum())


def played_data(
    timeline: Timeline, kept_bytes: Sequence[int] | None = None, number: int = 0
) -> tuple[dict[str, Any], str]:
    """Return an execution as JSON data and packed columns.

    Times are cycles from the execution's start.

    A long repeating execution keeps rows for its first and last periods, and summaries of the gaps. If all replicas do
    the same, only the first appears.

    Args:
        timeline: the run.
        kept_bytes: bytes that each stage keeps for a micro-batch; None if unknown.
        number: number of the execution.

    Raises OutputError for an execution of too many spans or of zero cycles, and TimelineError for an unknown execution.
    """
    part = _played_rows(timeline, number)
    info, execution = timeline.info, part.execution
    stash = analysis.stash_of(part.timeline, part.passes)
    columns, content = pack({**_boxes(part), **_slots(part, stash), **_transfers(part)})
    data = {
        "notes": list(_notes(part)),
        "end": execution.execution_cycles,
        "pipeline_end": execution.makespan_cycles,
        "training": info.training,
        "lanes": [_lane(info.stages_of_ipu[ipu], ipu) for ipu in part.lanes.tolist()],
        "phases": [
            {"name": phase.name, "start": phase.start - execution.start, "end": phase.end - execution.start}
            for phase in analysis.execution_phases(timeline, number)
        ],
        "time_steps": _time_steps(part) if info.has_time_steps else None,
        "time_steps_in_all": info.time_steps,
        "steps": _steps(part).tolist(),
        "gaps": list(_gaps(part, stash)),
        "kept_bytes": None if kept_bytes is None else list(kept_bytes),
        "columns": columns,
    }
    return data, content


def _played_rows(timeline: Timeline, number: int) -> _PlayedRows:
    execution, info = analysis.find_execution(timeline, number), timeline.info
    if not execution.execution_cycles:
        raise OutputError(f"expected an execution that takes time, got execution {number} of 0 cycles")
    expanded = timeline.expanded_around(execution.start, execution.end, _MOST_SPANS, MICRO_BATCHES)
    rows = np.flatnonzero(expanded.execution == number)
    if len(rows) > _MOST_PLAYED_SPANS:
        raise OutputError(
            f"expected an execution of at most {_MOST_PLAYED_SPANS:,} spans to play, got an execution of {len(rows):,} "
            "without repetition: run the scenario with fewer micro-batches"
        )
    lanes = np.array(list(info.stages_of_ipu), dtype=np.int64)
    if replicas_alike(timeline, None):
        lanes = lanes[lanes < info.shards]
    gaps = tuple(
        _extend_to_last_pass(expanded, gap)
        for gap in left_out(expanded)
        if execution.start <= gap.start < execution.end
    )
    return _PlayedRows(expanded, execution, lanes, rows, gaps)


def _extend_to_last_pass(timeline: Timeline, gap: LeftOut) -> LeftOut:
    """Extend a gap to the end of its last pass, since IPUs in point-to-point end periods at different times."""
    inside = slice(gap.block.first, gap.block.last)
    ends = timeline.end[inside][timelines.of_kinds(timeline.kind[inside], timelines.PASSES)]
    return gap._replace(end=gap.end + max(int(ends.max(initial=0)) - gap.start, 0))


def _lane(stages: Sequence[int], ipu: int) -> dict[str, Any]:
    several = len(stages) > 1
    return {"label": f"IPU {ipu}", "detail": f"stage{'s' * several} {', '.join(map(str, stages))}", "several": several}


def _notes(part: _PlayedRows) -> Iterator[str]:
    """Yield a note on replicas and on each gap that are not played."""
    info = part.timeline.info
    if len(part.lanes) < len(info.stages_of_ipu):
        yield f"The first of {info.replicas} equal replicas."
    for gap in part.gaps:
        yield f"Left out: {gap.words}, each like the parts before and after."


def _boxes(part: _PlayedRows) -> dict[str, Integers]:
    timeline = part.timeline
    boxes = timelines.of_kinds(timeline.kind[part.rows], _BOXES) & (timeline.end[part.rows] > timeline.start[part.rows])
    row, ipu = timeline.per_ipu(part.rows[boxes])
    on_lane = np.isin(ipu, part.lanes)
    row, ipu = row[on_lane], ipu[on_lane]
    columns = {name: getattr(timeline, name)[row] for name in ("kind", "stage", "micro_batch")}
    start, end = (part.times(column[row]) for column in (timeline.start, timeline.end))
    return {"start": start, "end": end, "lane": part.lane_of(ipu), **columns}


def _slots(part: _PlayedRows, stash: analysis.Stash) -> dict[str, Integers]:
    """Return the stash's slots: when each is taken, filled by its forward pass, used by its backward pass, and freed.

    Passes inside a gap get the time of the gap's middle.
    """
    timeline = part.timeline
    middles = np.array([(gap.start + gap.end) // 2 for gap in part.gaps] + [part.execution.end])
    rows = np.where(stash.opens == timelines.NONE, stash.closes, stash.opens)
    opening_gap, closing_gap = _gaps_of(part, stash)
    from_gap, to_gap = stash.opens == timelines.NONE, stash.closes == timelines.NONE
    return {
        "slot.start": part.times(np.where(from_gap, middles[opening_gap], timeline.start[stash.opens])),
        "slot.filled": part.times(np.where(from_gap, middles[opening_gap], timeline.end[stash.opens])),
        "slot.used": part.times(np.where(to_gap, middles[closing_gap], timeline.start[stash.closes])),
        "slot.end": part.times(np.where(to_gap, middles[closing_gap], timeline.end[stash.closes])),
        "slot.lane": part.lane_of(timeline.ipu[rows]),
        "slot.stage": timeline.stage[rows],
        "slot.micro_batch": timeline.micro_batch[rows],
    }


def _gaps_of(part: _PlayedRows, stash: analysis.Stash) -> tuple[Integers, Integers]:
    """Return for each slot the last gap before its closing pass, and the first gap after its opening pass."""
    ends = np.array([gap.block.last for gap in part.gaps], dtype=np.int64)
    before_closing = np.searchsorted(ends, stash.closes, side="right") - 1
    return np.maximum(before_closing, 0), np.searchsorted(ends, stash.opens, side="right")


def _gaps(part: _PlayedRows, stash: analysis.Stash) -> Iterator[dict[str, Any]]:
    """Yield gaps with their time, repeats and busy cycles, and by lane the number of hidden micro-batches.

    A stashed micro-batch is hidden if the gap contains both of its passes.
    """
    timeline = part.timeline
    cycles = np.zeros(len(timeline), dtype=np.int64)
    cycles[part.passes] = (timeline.end - timeline.start)[part.passes]
    from_gap, to_gap = stash.opens == timelines.NONE, stash.closes == timelines.NONE
    opening_gap, closing_gap = _gaps_of(part, stash)
    lane = part.lane_of(timeline.ipu[np.where(from_gap, stash.closes, stash.opens)])
    stashed = np.zeros(len(part.lanes), dtype=np.int64)
    for number, gap in enumerate(part.gaps):
        hidden = []
        for row in range(len(part.lanes)):
            amounts = np.zeros(len(timeline), dtype=np.int64)
            on_lane = lane == row
            amounts[stash.opens[on_lane & ~from_gap]] = 1
            amounts[stash.closes[on_lane & ~to_gap]] = -1
            stashed[row] += part.sum_left_out(gap, amounts)
            open_at_end = stashed[row] + amounts[: gap.block.last].sum()
            is_open = np.where(from_gap, opening_gap <= number, stash.opens < gap.block.last)
            is_closed = np.where(to_gap, closing_gap <= number, stash.closes < gap.block.last)
            hidden.append(max(int(open_at_end - (on_lane & is_open & ~is_closed).sum()), 0))
        yield {
            "start": gap.start - part.execution.start,
            "end": gap.end - part.execution.start,
            "words": gap.words,
            "busy": part.sum_left_out(gap, cycles),
            "more": hidden,
        }


def _transfers(part: _PlayedRows) -> dict[str, Integers]:
    """Return transfers between lanes in order of departure: times, lanes, and kind of the sending pass."""
    timeline = part.timeline
    _, flows = drawn_flows(timeline)
    on_lanes = np.isin(flows.source, part.passes) & np.isin(flows.target, part.passes)
    flows = flows.select(on_lanes)
    leaves, arrives = timeline.end[flows.source], timeline.end[flows.leaves]
    if timeline.info.has_time_steps:
        copies = part.rows[timeline.kind[part.rows] == SpanKind.EXCHANGE]
        if len(copies):
            copy = copies[np.minimum(np.searchsorted(timeline.start[copies], leaves), len(copies) - 1)]
            is_copied = (timeline.start[copy] >= leaves) & (timeline.end[copy] <= timeline.start[flows.target])
            leaves, arrives = (np.where(is_copied, column[copy], leaves) for column in (timeline.start, timeline.end))
    else:
        sends = flows.leaves != flows.source
        leaves = np.where(sends, timeline.start[flows.leaves], leaves)
    order = np.argsort(leaves, kind="stable")
    columns = {
        "move.leaves": part.times(leaves),
        "move.arrives": part.times(arrives),
        "move.from": part.lane_of(timeline.ipu[flows.source]),
        "move.to": part.lane_of(timeline.ipu[flows.target]),
        "move.kind": timeline.kind[flows.source],
    }
    return {name: column[order] for name, column in columns.items()}


def _time_steps(part: _PlayedRows) -> dict[str, list[int]]:
    """Return the numbers and starts of the execution's time-steps."""
    steps = analysis.time_steps(part.timeline)
    members = steps.execution == part.execution.index
    return {"number": steps.time_step[members].tolist(), "start": part.times(steps.start[members]).tolist()}


def _steps(part: _PlayedRows) -> Integers:
    """Return the player's steps in cycles: starts of time-steps, or ends of passes in point-to-point.

    Gaps contain no steps.
    """
    timeline, execution, passes = part.timeline, part.execution, part.passes
    edges = [0, execution.makespan_cycles, execution.execution_cycles]
    if timeline.info.has_time_steps:
        starts = np.unique(_time_steps(part)["start"] + edges)
    else:
        starts = np.unique(np.concatenate([part.times(timeline.end[passes]), edges]))
        least_distance = (
            _LEAST_STEP_DISTANCE * float(np.median((timeline.end - timeline.start)[passes])) if len(passes) else 0.0
        )
        starts = starts[np.append(np.diff(starts) > least_distance, True)]
    for gap in part.gaps:
        start, end = (cycle - execution.start for cycle in (gap.start, gap.end))
        starts = starts[(starts <= start) | (starts >= end)]
    return starts
