"""Which pass hands a tensor to which pass on another IPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ipusim.timeline.timeline import SpanKind, Timeline

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Flows:
    """Tensors that cross IPUs, as row numbers of a Timeline; columns of one length.

    Attributes:
        source, target: the pass that makes the tensor, and the one that takes it.
        forward: whether it is an activation; else it is a gradient.
    """

    source: Rows
    target: Rows
    forward: npt.NDArray[np.bool_]


def flows(timeline: Timeline) -> Flows:
    """Return every crossing tensor: activations from stage to stage, gradients back, of each micro-batch.

    The last forward and the first backward are the same stage's, on one IPU: nothing crosses between them.
    """
    activations = _neighbours(timeline, SpanKind.FORWARD, 1)
    gradients = _neighbours(timeline, SpanKind.BACKWARD, -1)
    source, target = (np.concatenate(pair) for pair in zip(activations, gradients, strict=True))
    forward = np.arange(len(source)) < len(activations[0])
    crosses = timeline.ipu[source] != timeline.ipu[target]
    return Flows(source[crosses], target[crosses], forward[crosses])


def _neighbours(timeline: Timeline, kind: SpanKind, stride: int) -> tuple[Rows, Rows]:
    """Return the rows of passes of ``kind`` and their micro-batch's next passes, ``stride`` stages on."""
    rows = timeline.rows(kind)
    stages = len(timeline.info.stages)
    # One number for (replica, execution, micro-batch, stage), with a gap after the last stage.
    executed = timeline.replica[rows] * timeline.info.executions + timeline.execution[rows]
    batch = executed * timeline.info.count + timeline.micro_batch[rows]
    key = batch * (stages + 2) + timeline.stage[rows] + 1
    order = np.argsort(key, kind="stable")
    wanted = key + stride
    place = np.searchsorted(key[order], wanted)
    found = place < len(key)
    found[found] = key[order][place[found]] == wanted[found]
    return rows[found], rows[order[place[found]]]
