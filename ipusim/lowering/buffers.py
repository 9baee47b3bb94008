"""Bounds on waiting tensors between two stages, for any durations.

A sender sees the receiver's progress only in returned tensors. The first proof that the receiver has run pass ``p`` is
a sender's pass with an input that the receiver made in ``p`` or later. Tensors sent before this proof may still wait
for ``p``. Dependencies via third IPUs are ignored, which makes the number an upper bound; under 1F1B the bound equals
the number of tensors kept by the schedule.
"""

from __future__ import annotations

import numpy as np

from ipusim.pipeline.instructions import any_of
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.shape import Column, PlanShape

#: Position after every pass.
_NEVER = np.iinfo(np.int64).max


def most_waiting(shape: PlanShape, passes: Column) -> dict[tuple[int, int], int]:
    """Return the most micro-batches that may wait between neighbouring stages.

    ``passes`` has the columns of an Order, shape (passes, 4), in the order of every IPU.
    """
    _, kind, stage, micro_batch = passes.T
    back = any_of(kind, (Pass.BACKWARD, Pass.INPUT_GRADIENT))
    rows = np.flatnonzero(back | (kind == Pass.FORWARD))
    copies = len(shape.copies)
    at = np.full((copies, 2, shape.stages, shape.micro_batches), _NEVER)  # by copy, direction, stage, micro-batch
    at[micro_batch[rows] % copies, back[rows].astype(int), stage[rows], micro_batch[rows]] = rows
    pairs = [(stage, stage + 1) for stage in range(shape.stages - 1)]
    if shape.training:
        pairs += [(target, source) for source, target in pairs]
    return {pair: _waiting(shape, at, *pair) for pair in pairs}


def _waiting(shape: PlanShape, at: Column, source: int, target: int) -> int:
    """Return the most tensors that may wait between a stage and a neighbour.

    ``at`` has the positions of producing and consuming passes within the orders of their IPUs.
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
    """Return the sender's first position that must follow, for every position of the receiver."""
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
