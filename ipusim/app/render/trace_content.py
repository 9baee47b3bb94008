"""Collect the content of a trace file before encoding: tracks, slices, flows and counters.

A span of all IPUs has a slice on every IPU's track. Times are whole nanoseconds; exact cycles are arguments of the
slices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from ipusim.api import SpanKind, Timeline, analysis, timelines
from ipusim.app.render.arrays import Integers
from ipusim.app.render.shortened import left_out
from ipusim.app.render.trace_clock import to_nanoseconds
from ipusim.app.render.trace_counters import Counter, counters
from ipusim.app.render.trace_flows import drawn_flows, find_sends
from ipusim.app.render.trace_tensors import LETTERS, Route, Tensors
from ipusim.app.render.trace_tracks import Tracks, tracks

#: Number of spans in a batch of slices, which bounds the memory for long runs.
_SPANS: Final = 8192
#: Fields of a run's info that become arguments of every execution, after its cycles.
_RUN_FIELDS: Final = ("system", "schedule", "sync", "selection_order", "clock_hz")
#: All arguments of an execution.
ABOUT: Final = ("cycles", *_RUN_FIELDS)
#: Name of each span kind, without numbers.
_KIND_NAMES: Final = timelines.by_number(lambda row: row.name, object)
#: Kinds whose slices are named with their micro-batch.
_NUMBERED: Final = timelines.kinds_with(lambda row: row.names_micro_batch)
#: Name of the tensors that an all-reduce over replicas sends over links.
_ALL_GRADIENTS: Final = "gradients of all micro-batches"


@dataclass(frozen=True)
class Slices:
    """Slices in order of time, as columns of one length; missing numbers are NONE, missing texts empty.

    Attributes:
        row: row of the Timeline.
        track: number of the track.
        start_ns, end_ns: nanoseconds from the start of the run.
        name: label for readers; a pass is named as in a printed schedule, ``F1.3→``.
        sends, receives: names of tensors.
        departures, arriving: numbers of the flows that leave a pass, and of those that arrive at it, shape (slices,
            flows); flows are numbered from 1, and 0 means no flow.
        kind: number of the span kind.
        numbers: columns of the Timeline by argument name, with times in cycles. The bytes of a copy that is merged over
            IPUs are given on links, and are 0 on the tracks of IPUs.
    """

    row: Integers
    track: Integers
    start_ns: Integers
    end_ns: Integers
    name: list[str]
    sends: list[str]
    receives: list[str]
    departures: Integers
    arriving: Integers
    kind: Integers
    numbers: dict[str, Integers]


class Band(NamedTuple):
    """Slice of an execution or a phase; its ``parts`` are inner slices."""

    name: str
    category: str
    start_ns: int
    end_ns: int
    arguments: dict[str, int | str]
    parts: tuple[Band, ...] = ()


class TraceContent:
    """Content of a run's trace file.

    Attributes:
        timeline: part of the run in the file.
        left_out: periods of the run that the file leaves out.
        counters: numbers over time.
        tracks: tracks of slices and counters.
        flows: tensors that cross IPUs, from a departure (pass or send) to the consuming pass.
    """

    def __init__(
        self,
        timeline: Timeline,
        memory: Sequence[analysis.MemoryCurve] = (),
        route: Route | None = None,
        waterfall: analysis.Waterfall | None = None,
    ) -> None:
        """Prepare the content of a run.

        If rows of ``timeline`` stand for several equal periods of the run, the file contains one of these periods.

        Args:
            timeline: the run.
            memory: curve of memory over time for each IPU.
            route: function from two logical IPUs to link directions; without it, slices of links have no tensors.
            waterfall: parts of the run's time.
        """
        self.left_out = tuple(left_out(timeline))
        self.counters: tuple[Counter, ...] = counters(timeline, memory, waterfall)
        self.timeline = timeline.without_copies()
        run = timeline.contiguous()
        _, added_micro_batches, *_ = timeline.blocks.added_by_copies(timeline.columns)
        self.tracks: Tracks = tracks(timeline, [(counter.name, counter.unit, counter.ipu) for counter in self.counters])
        crossing, self.flows = drawn_flows(timeline)
        self._drawn_sends = timeline.rows(*timelines.SEND_KINDS)
        self._sends, self._makers = find_sends(run)
        self._tensors = Tensors(run, crossing, route, added_micro_batches)
        self._departures, self._arriving = (_numbered_by_row(rows) for rows in (self.flows.leaves, self.flows.target))

    def bands(self) -> Iterator[tuple[int, Band]]:
        """Yield tracks and slices of executions, phases and work repeated after losses."""
        for begin, end in analysis.redone_work(self.timeline):
            redone = self._band("work done again", "fault", begin, end, {"cycles": end - begin})
            yield self.tracks.redone, redone
        for band in self._executions():
            yield self.tracks.phases, band

    def _executions(self) -> Iterator[Band]:
        info = self.timeline.info
        run_arguments = {name: getattr(info, name) for name in _RUN_FIELDS} | {"sync": info.sync.value}
        phases_of: dict[int, list[analysis.Phase]] = defaultdict(list)
        for phase in analysis.phases_of(self.timeline):
            phases_of[phase.execution].append(phase)
        begin = 0
        for execution in analysis.executions_of(self.timeline):
            yield from self._gaps(begin, execution.start)
            parts = tuple(
                self._band(
                    phase.name,
                    "phase",
                    phase.start,
                    phase.end,
                    {"cycles": phase.cycles},
                    self._gaps(phase.start, phase.end),
                )
                for phase in phases_of[execution.index]
            )
            name, arguments = f"execution {execution.index}", {"cycles": execution.execution_cycles, **run_arguments}
            yield self._band(name, "execution", execution.start, execution.end, arguments, parts)
            begin = execution.end

    def _gaps(self, start: int, end: int) -> tuple[Band, ...]:
        """Return the periods left out between two cycles."""
        return tuple(
            self._band(
                f"{gap.words}, not drawn: --full-trace",
                "phase",
                max(gap.start, start),
                min(gap.end, end),
                {"cycles": gap.end - gap.start},
            )
            for gap in self.left_out
            if gap.start < end and gap.end > start
        )

    def _band(
        self,
        name: str,
        category: str,
        start: int,
        end: int,
        arguments: dict[str, int | str],
        parts: tuple[Band, ...] = (),
    ) -> Band:
        start_ns, end_ns = self._nanoseconds(np.array([start, end])).tolist()
        return Band(name, category, start_ns, end_ns, arguments, parts)

    def _nanoseconds(self, cycles: Integers) -> Integers:
        return to_nanoseconds(cycles, self.timeline.info.clock_hz)

    def slices(self) -> Iterator[Slices]:
        """Yield all slices in batches, without empty spans except passes, which flows refer to."""
        is_drawn = (self.timeline.end > self.timeline.start) | timelines.of_kinds(self.timeline.kind, timelines.PASSES)
        for first in range(0, len(self.timeline), _SPANS):
            yield self._slices(first + np.flatnonzero(is_drawn[first : first + _SPANS]))

    def _slices(self, rows: Integers) -> Slices:
        timeline = self.timeline
        off_ipu = ~timelines.of_kinds(timeline.kind[rows], timelines.IPU_KINDS)
        row, position = timeline.per_ipu(rows[~off_ipu])
        track = np.where(
            timelines.of_kinds(timeline.kind[row], timelines.IO_TILE_KINDS),
            self.tracks.io_tiles[position],
            self.tracks.ipu[position],
        )
        off_ipu_rows = rows[off_ipu]
        row, position = (
            np.concatenate([row, off_ipu_rows]),
            np.concatenate([position, np.full(len(off_ipu_rows), timelines.NONE)]),
        )
        track = np.concatenate([track, self._off_ipu_tracks(off_ipu_rows)])
        order = np.lexsort((track, row))
        row, position, track = row[order], position[order], track[order]
        sends, receives = self._tensors_of(row, position)
        start, end = timeline.start[row], timeline.end[row]
        # A merged copy's bytes count on its links; on IPUs they would count once for each IPU.
        is_merged = (position != timelines.NONE) & (timeline.ipu[row] == timelines.ALL_IPUS)
        no_steps = np.full(len(row), timelines.NONE)
        numbers = {
            "start_cycles": start,
            "end_cycles": end,
            "stage": timeline.stage[row],
            "micro_batch": timeline.micro_batch[row],
            "time_step": timeline.time_step[row] if timeline.info.has_time_steps else no_steps,
            "execution": timeline.execution[row],
            "bytes": np.where(is_merged, 0, timeline.bytes[row]),
        }
        return Slices(
            row=row,
            track=track,
            start_ns=self._nanoseconds(start),
            end_ns=self._nanoseconds(end),
            name=self._names(row),
            sends=sends,
            receives=receives,
            departures=_flows_at(*self._departures, row),
            arriving=_flows_at(*self._arriving, row),
            kind=timeline.kind[row],
            numbers=numbers,
        )

    def _off_ipu_tracks(self, rows: Integers) -> Integers:
        """Return the tracks of sends, links and host spans."""
        timeline, numbers = self.timeline, self.timeline.link[rows]
        track_numbers = np.full(len(rows), timelines.NONE)
        links = timeline.kind[rows] == SpanKind.LINK
        track_numbers[links] = self.tracks.link[numbers[links]]
        sends = timelines.of_kinds(timeline.kind[rows], timelines.SEND_KINDS)
        track_numbers[sends] = self.tracks.send[np.searchsorted(self._drawn_sends, rows[sends])]
        host = ~(links | sends)
        feeds = len(self.tracks.feed) // timeline.info.replicas
        track_numbers[host] = self.tracks.feed[(feeds * timeline.replica[rows] + numbers)[host]]
        return track_numbers

    def _tensors_of(self, row: Integers, position: Integers) -> tuple[list[str], list[str]]:
        """Return the tensors that inter-IPU copies send and receive."""
        copies = np.flatnonzero(self.timeline.kind[row] == SpanKind.EXCHANGE)
        rows_and_positions = row[copies], position[copies]
        sends, receives = np.full((2, len(row)), "", dtype=object)
        sends[copies], receives[copies] = (
            self._tensors.sent_names(*rows_and_positions),
            self._tensors.received_names(*rows_and_positions),
        )
        return sends.tolist(), receives.tolist()

    def _names(self, row: Integers) -> list[str]:
        """Return the name of each slice.

        Names of passes have stage and micro-batch between letter and arrow. Names of host copies end with the
        micro-batch, and names of sends with the pass that made the tensor. Links are named by the tensors that they
        carry.
        """
        timeline, kind, name_of = self.timeline, self.timeline.kind[row], self.timeline.info.name_of
        stage, micro_batch = timeline.stage[row], timeline.micro_batch[row]
        names: list[str] = _KIND_NAMES[kind].tolist()
        passes = np.flatnonzero(timelines.of_kinds(kind, timelines.PASSES))
        for index, number_of_stage, number in zip(
            passes.tolist(), stage[passes].tolist(), micro_batch[passes].tolist(), strict=True
        ):
            names[index] = f"{names[index][:1]}{number_of_stage}.{name_of(number)}{names[index][1:]}"
        sends = np.flatnonzero(np.isin(row, self._sends))
        makers = self._makers[np.searchsorted(self._sends, row[sends])]
        for index, letter, number_of_stage, number in zip(
            sends.tolist(),
            LETTERS[timeline.kind[makers]],
            stage[sends].tolist(),
            micro_batch[sends].tolist(),
            strict=True,
        ):
            names[index] += f" {letter}{number_of_stage}.{name_of(number)}"
        copies = np.flatnonzero(timelines.of_kinds(kind, _NUMBERED) & (micro_batch != timelines.NONE))
        for index, number in zip(copies.tolist(), micro_batch[copies].tolist(), strict=True):
            names[index] += f" {name_of(number)}"
        links = np.flatnonzero(kind == SpanKind.LINK)
        members = row[links]
        tensors_on_links = self._tensors.tensors_on_links(members)
        is_all_reduce = (timeline.time_step[members] == timeline.info.time_steps).tolist()
        for index, text, is_gradient_sum in zip(links.tolist(), tensors_on_links, is_all_reduce, strict=True):
            names[index] = _ALL_GRADIENTS if is_gradient_sum else text or names[index]
        return names


def _numbered_by_row(rows: Integers) -> tuple[Integers, Integers]:
    """Return rows in rising order, and the number of the flow at each row."""
    order = np.argsort(rows, kind="stable")
    return rows[order], order + 1


def _flows_at(rows: Integers, numbers: Integers, members: Integers) -> Integers:
    """Return the flow numbers at rows ``members``, shape (members, most flows at a row)."""
    first, stop = (np.searchsorted(rows, members, side=side) for side in ("left", "right"))
    position = first[:, np.newaxis] + np.arange(int((stop - first).max(initial=0)))
    matching: Integers = np.where(
        position < stop[:, np.newaxis], np.append(numbers, 0)[np.minimum(position, len(numbers))], 0
    )
    return matching
