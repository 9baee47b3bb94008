"""Bound the number of tensors that wait between two stages in point-to-point, for any durations of passes.

A sending IPU learns of the receiver's progress only from tensors that come back. The receiver has surely run its pass
``p`` once the sender runs a pass on a tensor that the receiver made in ``p`` or later. Tensors sent before this pass of
the sender may still wait for ``p``. Dependencies via third IPUs are ignored, so the number is an upper bound; under
1F1B it equals the number of tensors kept by the schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from ipusim.pipeline.instructions import any_of
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.shape import Column, PlanShape

#: Position after every pass.
_UNREACHED = np.iinfo(np.int64).max
#: Way of tensors: copy of the pipeline, direction, source and target stage.
_Way = tuple[int, int, int, int]


def most_waiting(shape: PlanShape, passes: Column) -> dict[tuple[int, int], int]:
    """Return the maximum number of micro-batches that may wait between neighbouring stages, by (source, target).

    ``passes`` has the columns of an Order, shape (passes, 4), in the order of every IPU.
    """
    _, kind, stage, micro_batch = passes.T
    direction = any_of(kind, (Pass.BACKWARD, Pass.INPUT_GRADIENT))
    rows = np.flatnonzero(direction | (kind == Pass.FORWARD))
    copies = len(shape.copies)
    # Rows of passes by copy, direction, stage and micro-batch.
    row_of = np.full((copies, 2, shape.stages, shape.micro_batches), _UNREACHED)
    row_of[micro_batch[rows] % copies, direction[rows].astype(int), stage[rows], micro_batch[rows]] = rows
    pairs = [(stage, stage + 1) for stage in range(shape.stages - 1)]
    ways: dict[tuple[int, int], list[_Way]] = {}
    for copy, mapping in enumerate(shape.copies):
        for stage, next_stage in pairs:
            forward_way, backward_way = (copy, 0, stage, next_stage), (copy, 1, next_stage, stage)
            ways.setdefault((mapping[stage], mapping[next_stage]), []).append(forward_way)
            ways.setdefault((mapping[next_stage], mapping[stage]), []).append(backward_way)
    if shape.training:
        pairs += [(target, source) for source, target in pairs]
    return {pair: _most_between(shape, row_of, ways, *pair) for pair in pairs}


def _most_between(
    shape: PlanShape, row_of: Column, ways: Mapping[tuple[int, int], Iterable[_Way]], source: int, target: int
) -> int:
    """Return the maximum number of tensors that may wait between a stage and a neighbour.

    ``row_of`` has the positions of producing and consuming passes within the orders of their IPUs; ``ways`` are the
    ways of tensors from one IPU to another.
    """
    direction, most = int(target < source), 1
    for copy, mapping in enumerate(shape.copies):
        sends, uses = np.sort(row_of[copy, direction, source]), np.sort(row_of[copy, direction, target])
        if mapping[source] == mapping[target]:
            sent_count = np.searchsorted(sends, uses)
        else:
            back = ways.get((mapping[target], mapping[source]), ())
            sent_count = np.searchsorted(sends, _proof_of(row_of, back, uses))
        most = max(most, int((sent_count - np.arange(len(uses))).max(initial=1)))
    return most


def _proof_of(row_of: Column, back: Iterable[_Way], uses: Column) -> Column:
    """Return, for every pass in ``uses``, the sender's first pass that proves that the pass has run.

    Args:
        row_of: position of each pass in the order of its IPU, by copy, direction, stage and micro-batch.
        back: ways from the receiver to the sender.
        uses: positions of the receiver's passes.

    Returns:
        Positions in the sender's order; _UNREACHED without a proof.
    """
    send_positions, use_positions = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for copy, direction, stage, target in back:
        send_positions.append(row_of[copy, direction, stage])
        use_positions.append(row_of[copy, direction, target])
    order = np.argsort(np.concatenate(send_positions), kind="stable")
    position = np.concatenate(send_positions)[order]
    first = np.minimum.accumulate(np.concatenate(use_positions)[order][::-1])[::-1]
    positions: Column = np.append(first, _UNREACHED)[np.searchsorted(position, uses)]
    return positions
