"""Tensors that cross IPUs: the pass that makes each, and the pass that takes it."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from ipusim.api import SpanKind, Timeline, timelines
from ipusim.app.render.arrays import Integers


@dataclass(frozen=True)
class Flows:
    """Tensors that cross IPUs, as row numbers of a Timeline; columns of one length.

    Attributes:
        source, target: the pass that makes the tensor, and the one that takes it.
        leaves: where it leaves from: its send, or the pass where a merged copy moves it or sending takes no time.
        forward: whether it is an activation; else it is a gradient.
    """

    source: Integers
    target: Integers
    leaves: Integers
    forward: npt.NDArray[np.bool_]

    def some(self, chosen: npt.NDArray[np.bool_]) -> Flows:
        """Return those that are chosen."""
        return Flows(*(getattr(self, field.name)[chosen] for field in fields(self)))


def flows(timeline: Timeline) -> Flows:
    """Return every crossing tensor: activations from stage to stage, gradients back, of each micro-batch.

    The last forward and the first backward are the same stage's, on one IPU: nothing crosses between them.
    """
    activations = _neighbours(timeline, timeline.rows(SpanKind.FORWARD), 1)
    gradients = _neighbours(timeline, timeline.rows(SpanKind.BACKWARD, SpanKind.INPUT_GRADIENT), -1)
    source, target = (np.concatenate(pair) for pair in zip(activations, gradients, strict=True))
    forward = np.arange(len(source)) < len(activations[0])
    crosses = timeline.ipu[source] != timeline.ipu[target]
    source, target, forward = source[crosses], target[crosses], forward[crosses]
    sends, makers = sent(timeline)
    taking_time = timeline.end[sends] > timeline.start[sends]
    send_of = np.arange(len(timeline))
    send_of[makers[taking_time]] = sends[taking_time]
    return Flows(source, target, send_of[source], forward)


def drawn_flows(timeline: Timeline) -> tuple[Flows, Flows]:
    """Return every crossing tensor of a Timeline, whose blocks happen once, and those that go from row to drawn row."""
    # With each block once every tensor goes from pass to pass, if not to one that is drawn.
    later, *_ = timeline.blocks.added(timeline.columns)
    crossing = flows(timeline.contiguous())
    return crossing, crossing.some(later[crossing.source] == later[crossing.target])


def sent(timeline: Timeline) -> tuple[Integers, Integers]:
    """Return the rows of a Timeline's sends, and the rows of the passes whose tensors they carry.

    The latter is the nearest pass in the chain of causes, as a store may lie between pass and send.
    """
    sends = timeline.rows(SpanKind.SEND, SpanKind.BLOCKING_SEND)
    makers = timeline.cause[sends]
    while (others := ~timelines.of_kinds(timeline.kind[makers], timelines.PASSES)).any():
        makers[others] = timeline.cause[makers[others]]
    return sends, makers


def _neighbours(timeline: Timeline, rows: Integers, stride: int) -> tuple[Integers, Integers]:
    """Return the passes among ``rows`` whose micro-batch goes on, ``stride`` positions further, and where it goes."""
    if not len(rows):
        return rows, rows
    stages = len(timeline.info.stages)
    positions = np.asarray(timeline.info.position_of)
    # One number for (replica, execution, micro-batch, stage).
    executed = timeline.replica[rows] * timeline.info.executions + timeline.execution[rows]
    stage = timeline.stage[rows]
    key = (executed * timeline.info.count + timeline.micro_batch[rows]) * stages + stage
    order = np.argsort(key, kind="stable")
    neighbours = []
    # Neighbours differ by one in number too, except where stages run at the same time.
    for jump in sorted({int(b - a) for a in range(stages) for b in np.flatnonzero(positions == positions[a] + stride)}):
        source = np.flatnonzero((stage + jump >= 0) & (stage + jump < stages))
        source = source[positions[stage[source] + jump] == positions[stage[source]] + stride]
        needed = key[source] + jump
        position = np.minimum(np.searchsorted(key[order], needed), len(key) - 1)
        there = key[order][position] == needed
        neighbours.append((rows[source[there]], rows[order[position[there]]]))
    if not neighbours:
        return rows[:0], rows[:0]
    source, target = (np.concatenate(side) for side in zip(*neighbours, strict=True))
    by_source = np.argsort(source, kind="stable")
    return source[by_source], target[by_source]
