"""How many tensors may wait between the stage that makes them and the one that takes them, whatever the times.

A receiver lets its sender know how far it is by what it sends back alone: a pass of the sender that takes something
which the receiver makes no earlier than a pass of its own comes behind that pass. All that the sender makes before
the first such pass may lie with the receiver already. What goes on over third IPUs is left out, so that the
number is a bound; under 1F1B it is what the schedule keeps.
"""

from __future__ import annotations

import numpy as np

from ipusim.pipeline.instructions import any_of
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.shape import Column, PlanShape

#: Position behind every pass.
_NEVER = np.iinfo(np.int64).max


def most_waiting(shape: PlanShape, passes: Column) -> dict[tuple[int, int], int]:
    """Return the most micro-batches that may wait between each stage and each consumer of its output.

    ``passes`` has the columns of an Order, shape (passes, 4), in the order of each IPU.
    """
    _, kind, stage, micro_batch = passes.T
    back = any_of(kind, (Pass.BACKWARD, Pass.INPUT_GRADIENT))
    rows = np.flatnonzero(back | (kind == Pass.FORWARD))
    copies = len(shape.copies)
    at = np.full((copies, 2, shape.stages, shape.micro_batches), _NEVER)  # by copy, way, stage, micro-batch
    at[micro_batch[rows] % copies, back[rows].astype(int), stage[rows], micro_batch[rows]] = rows
    pairs = [(stage, stage + 1) for stage in range(shape.stages - 1)]
    if shape.training:
        pairs += [(target, source) for source, target in pairs]
    return {pair: _waiting(shape, at, *pair) for pair in pairs}


def _waiting(shape: PlanShape, at: Column, source: int, target: int) -> int:
    """Return the most tensors that may wait on the way from one stage to its neighbour.

    ``at`` are the positions of passes that make and take tensors in the orders of their IPUs.
    """
    back, most = int(target < source), 1
    for copy, mapping in enumerate(shape.copies):
        made, taken = np.sort(at[copy, back, source]), np.sort(at[copy, back, target])
        if mapping[source] == mapping[target]:
            before = np.searchsorted(made, taken)
        else:
            before = np.searchsorted(made, _known(shape, at, mapping[target], mapping[source], taken))
        most = max(most, int((before - np.arange(len(taken))).max(initial=1)))
    return most


def _known(shape: PlanShape, at: Column, receiver: int, sender: int, taken: Column) -> Column:
    """Return for each position of the receiver the first one of the sender that must come behind it."""
    sent, used = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for copy, back, stage in np.ndindex(at.shape[:-1]):
        mapping = shape.copies[copy]
        target = stage - 1 if back else stage + 1
        inside = 0 <= target < shape.stages
        if inside and (mapping[stage], mapping[target]) == (receiver, sender):
            sent.append(at[copy, back, stage])
            used.append(at[copy, back, target])
    order = np.argsort(np.concatenate(sent), kind="stable")
    position = np.concatenate(sent)[order]
    first = np.minimum.accumulate(np.concatenate(used)[order][::-1])[::-1]
    positions: Column = np.append(first, _NEVER)[np.searchsorted(position, taken)]
    return positions
