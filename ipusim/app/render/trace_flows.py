"""Find the tensors that cross IPUs, with their producing and consuming passes."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from ipusim.api import SpanKind, Timeline, timelines
from ipusim.app.render.arrays import Integers


@dataclass(frozen=True)
class Flows:
    """Tensors that cross IPUs, as row numbers of a Timeline; columns of equal length.

    Attributes:
        source, target: producing and consuming pass of the tensor.
        leaves: row from which the tensor departs: its send, or its pass if a merged copy moves it or if sending takes
            no time.
        forward: True for activations, False for gradients.
    """

    source: Integers
    target: Integers
    leaves: Integers
    forward: npt.NDArray[np.bool_]

    def select(self, members: npt.NDArray[np.bool_]) -> Flows:
        """Return the flows selected by a mask."""
        return Flows(*(getattr(self, field.name)[members] for field in fields(self)))


def flows(timeline: Timeline) -> Flows:
    """Return every tensor that crosses IPUs: activations to the next stage, and gradients to the previous.

    No tensor crosses from a micro-batch's last forward pass to the first backward pass, as one IPU runs both passes.
    """
    activations = _neighbours(timeline, timeline.rows(SpanKind.FORWARD), 1)
    gradients = _neighbours(timeline, timeline.rows(SpanKind.BACKWARD, SpanKind.INPUT_GRADIENT), -1)
    source, target = (np.concatenate(pair) for pair in zip(activations, gradients, strict=True))
    forward = np.arange(len(source)) < len(activations[0])
    crosses = timeline.ipu[source] != timeline.ipu[target]
    source, target, forward = source[crosses], target[crosses], forward[crosses]
    sends, producers = find_sends(timeline)
    takes_time = timeline.end[sends] > timeline.start[sends]
    send_of = np.arange(len(timeline))
    send_of[producers[takes_time]] = sends[takes_time]
    return Flows(source, target, send_of[source], forward)


def drawn_flows(timeline: Timeline) -> tuple[Flows, Flows]:
    """Return every crossing tensor, and the tensors that cross within a drawn period.

    Rows that stand for several periods of the run count once.
    """
    # In a run with a single copy of every period, a tensor's consuming pass may belong to a later period.
    period, *_ = timeline.blocks.added_by_copies(timeline.columns)
    crossing = flows(timeline.contiguous())
    return crossing, crossing.select(period[crossing.source] == period[crossing.target])


def find_sends(timeline: Timeline) -> tuple[Integers, Integers]:
    """Return the rows of sends, and of the passes that produced their tensors.

    A store may come between pass and send: the producer is the nearest pass in the chain of causes.
    """
    sends = timeline.rows(SpanKind.SEND, SpanKind.BLOCKING_SEND)
    producers = timeline.cause[sends]
    while (unresolved := ~timelines.of_kinds(timeline.kind[producers], timelines.PASSES)).any():
        producers[unresolved] = timeline.cause[producers[unresolved]]
    return sends, producers


def _neighbours(timeline: Timeline, rows: Integers, stride: int) -> tuple[Integers, Integers]:
    """Return passes whose micro-batch continues ``stride`` pipeline positions further, and the following passes."""
    if not len(rows):
        return rows, rows
    stages = len(timeline.info.stages)
    positions = np.asarray(timeline.info.position_of)
    # Combined key of replica, execution, micro-batch and stage.
    executed = timeline.replica[rows] * timeline.info.executions + timeline.execution[rows]
    stage = timeline.stage[rows]
    key = (executed * timeline.info.count + timeline.micro_batch[rows]) * stages + stage
    order = np.argsort(key, kind="stable")
    neighbours = []
    # Neighbouring positions also have neighbouring numbers, except with parallel stages.
    for jump in sorted({int(b - a) for a in range(stages) for b in np.flatnonzero(positions == positions[a] + stride)}):
        source = np.flatnonzero((stage + jump >= 0) & (stage + jump < stages))
        source = source[positions[stage[source] + jump] == positions[stage[source]] + stride]
        wanted_key = key[source] + jump
        position = np.minimum(np.searchsorted(key[order], wanted_key), len(key) - 1)
        exists = key[order][position] == wanted_key
        neighbours.append((rows[source[exists]], rows[order[position[exists]]]))
    if not neighbours:
        return rows[:0], rows[:0]
    source, target = (np.concatenate(side) for side in zip(*neighbours, strict=True))
    by_source = np.argsort(source, kind="stable")
    return source[by_source], target[by_source]
