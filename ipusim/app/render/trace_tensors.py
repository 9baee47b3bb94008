"""Find the tensors of inter-IPU copies, by sending IPU, receiving IPU and link."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from ipusim.api import Timeline, timelines
from ipusim.app.render.arrays import Integers
from ipusim.app.render.trace_flows import Flows

#: Function from two logical IPUs to the link directions between them.
Route = Callable[[int, int], Sequence[str]]

#: Letters of passes by kind number, as in a printed schedule: ``F1.3``.
LETTERS: Final = timelines.by_number(lambda row: "" if row.of_pass is None else row.of_pass.letter, object)


class Tensors:
    """Tensors that cross IPUs, found by the time-step before their copy.

    Tensors are named after their pass: ``activations F1.3``, ``gradients B2.0``.
    """

    def __init__(self, timeline: Timeline, flows: Flows, route: Route | None, added_micro_batches: Integers) -> None:
        """Index a run's flows.

        ``route`` returns the links between two IPUs; without it, links have no tensors. ``added_micro_batches`` is
        added to the micro-batch numbers in tensor names, for each row.
        """
        self._added_micro_batches = added_micro_batches
        self._timeline, self._flows = timeline, flows
        self._steps = timeline.info.time_steps + 1
        self._width = max(len(timeline.info.ipus), len(timeline.info.links), 1)
        number = np.arange(len(flows.source))
        self._sends = self._by_position(number, timeline.ipu[flows.source])
        self._receives = self._by_position(number, timeline.ipu[flows.target])
        self._time_range = timeline.makespan_cycles + 2
        flow, link = self._on_links(route) if route else (number[:0], number[:0])
        self._on_link = (
            self._by_position(flow, link)
            if timeline.info.has_time_steps
            else _sort_flows(link * self._time_range + timeline.end[flows.leaves[flow]], flow)
        )

    def sent_names(self, rows: Integers, ipu: Integers) -> list[str]:
        """Return the tensors that each IPU of ``ipu`` sends after the time-step of its row in ``rows``."""
        return self._names_at(self._sends, rows, ipu)

    def received_names(self, rows: Integers, ipu: Integers) -> list[str]:
        """Return the tensors that each IPU of ``ipu`` receives after the time-step of its row in ``rows``."""
        return self._names_at(self._receives, rows, ipu)

    def tensors_on_links(self, rows: Integers) -> list[str]:
        """Return the tensors on links during the spans ``rows``."""
        timeline = self._timeline
        link = timeline.link[rows]
        if timeline.info.has_time_steps:
            return self._names_at(self._on_link, rows, link)
        # A tensor leaves every link of its route when it arrives, during the spans in which the links are busy.
        begins, ends = (link * self._time_range + times[rows] + 1 for times in (timeline.start, timeline.end))
        return self._names_between(self._on_link, begins, ends, self._added_micro_batches[rows])

    def _by_position(self, flow: Integers, position: Integers) -> tuple[Integers, Integers]:
        """Return sorted keys of time-step and position, and their flows."""
        row = self._flows.source[flow]
        return _sort_flows(self._key(self._timeline.execution[row], self._timeline.time_step[row], position), flow)

    def _key(self, execution: Integers, time_step: Integers, position: Integers) -> Integers:
        return (execution * self._steps + time_step) * self._width + position

    def _on_links(self, route: Route) -> tuple[Integers, Integers]:
        """Return the flows on link directions: numbers of flows and links."""
        info = self._timeline.info
        numbers = {name: number for number, name in enumerate(info.links)}
        source, target = (self._timeline.ipu[rows] for rows in (self._flows.source, self._flows.target))
        pairs, pair = np.unique(source * len(info.ipus) + target, return_inverse=True)
        ways = [
            [numbers[name] for name in route(*divmod(pair, len(info.ipus))) if name in numbers]
            for pair in pairs.tolist()
        ]
        lengths = np.array([len(way) for way in ways], dtype=np.int64)[pair]
        flow = np.repeat(np.arange(len(pair)), lengths)
        first = np.concatenate([[0], np.cumsum([len(way) for way in ways])]).astype(np.int64)[pair]
        hop = np.arange(len(flow)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        hops = np.array([link for way in ways for link in way], dtype=np.int64)
        return flow, hops[np.repeat(first, lengths) + hop]

    def _names_at(self, index: tuple[Integers, Integers], rows: Integers, position: Integers) -> list[str]:
        keys = self._key(self._timeline.execution[rows], self._timeline.time_step[rows], position)
        return self._names_between(index, keys, keys + 1, self._added_micro_batches[rows])

    def _names_between(
        self, index: tuple[Integers, Integers], begins: Integers, ends: Integers, added_micro_batches: Integers
    ) -> list[str]:
        """Return the tensors with keys in the half-open ranges from ``begins`` to ``ends``."""
        keys, flow = index
        first, last = np.searchsorted(keys, begins), np.searchsorted(keys, ends)
        stops = np.cumsum(last - first)
        starts = stops - (last - first)
        flows = flow[np.repeat(first - starts, last - first) + np.arange(stops[-1] if len(stops) else 0)]
        names = self._names(flows, np.repeat(added_micro_batches, last - first))
        return [
            names[begin] if end - begin == 1 else ", ".join(names[begin:end])
            for begin, end in zip(starts.tolist(), stops.tolist(), strict=True)
        ]

    def _names(self, flow: Integers, added_micro_batches: Integers) -> list[str]:
        rows, name_of = self._flows.source[flow], self._timeline.info.name_of
        return [
            f"{'activations' if forward else 'gradients'} {LETTERS[kind]}{stage}.{name_of(micro_batch)}"
            for forward, kind, stage, micro_batch in zip(
                self._flows.forward[flow].tolist(),
                self._timeline.kind[rows].tolist(),
                self._timeline.stage[rows].tolist(),
                (self._timeline.micro_batch[rows] + added_micro_batches).tolist(),
                strict=True,
            )
        ]


def _sort_flows(keys: Integers, flow: Integers) -> tuple[Integers, Integers]:
    """Return ``keys`` in rising order, and their flows."""
    order = np.argsort(keys, kind="stable")
    return keys[order], flow[order]
