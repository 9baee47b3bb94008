"""Choose which activations leave their IPU between forward and backward pass, and when they move.

The lowerings of a Plan to instructions, for lock-step and for point-to-point, insert the moves. Some micro-batches of
each stage stay on the IPU; the rest takes turns in a few buffers. A micro-batch occupies a buffer from the start of its
forward pass until the end of the move out, and from the start of the move back until the end of the pass that uses it.
In point-to-point, moves overlap passes. In lock-step the IPU waits for moves, with two exceptions: moves on I/O tiles
overlap the passes of a whole time-step, and moves to another IPU join the merged copy after a time-step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from ipusim.pipeline.instructions import NONE, any_of
from ipusim.pipeline.offload import Destination, MovedActivations
from ipusim.pipeline.ops import Pass
from ipusim.pipeline.shape import Column, Mask, PlanShape


class Way(IntEnum):
    """Direction of a move, stored as ``number`` of its instructions."""

    OUT = 0
    BACK = 1


class Move(NamedTuple):
    """A move of one micro-batch's activations of a stage, out and back. Rows are rows of a Plan's passes.

    Attributes:
        ipu: IPU of the forward pass.
        stage: stage of the forward pass.
        micro_batch: micro-batch of the forward pass.
        forward_row: row of the forward pass.
        use_row: row of the pass that uses the activations.
        back_after_row: row after which the move back begins, in point-to-point; -1 in lock-step.
        earlier_move: number of a micro-batch of the same stage; its move out must end before this move back begins; -1
            if the move back waits for no move out.
        waiting_row: row of the forward pass that waits for the end of this move out; -1 if no forward pass waits.
        away_begin: first row in which the activations are certainly away.
        away_end: row after the last row in which the activations are certainly away.
    """

    ipu: int
    stage: int
    micro_batch: int
    forward_row: int
    use_row: int
    back_after_row: int
    earlier_move: int
    waiting_row: int
    away_begin: int
    away_end: int


def moves_of(passes: Column, shape: PlanShape, options: MovedActivations, *, has_time_steps: bool) -> tuple[Move, ...]:
    """Return the moves of one execution, by IPU, stage and forward pass.

    Args:
        passes: table of a Plan, shape (passes, 5).
        shape: shape of the program.
        options: moved activations; its stages have activations of at least one byte.
        has_time_steps: whether IPUs meet after each time-step.
    """
    step, ipu, kind, stage, micro_batch = passes.T
    moves: list[Move] = []
    for number in range(shape.stages) if shape.training else ():
        if options.stages is not None and number not in options.stages:
            continue
        uses = _uses_of(shape, number, kind)
        for home in shape.ipus_of(number):
            if options.to == "partner" and options.receiving_ipu(home, shape.mapping) == home:
                continue
            stash_rows = np.flatnonzero((ipu == home) & (stage == number) & (uses | (kind == Pass.FORWARD)))
            columns = zip(stash_rows.tolist(), uses[stash_rows].tolist(), micro_batch[stash_rows].tolist(), strict=True)
            stash_passes = list(map(_StashPass._make, columns))
            moved_passes = _moved_passes(
                stash_passes, options.most_kept(shape.mapping), 1 if has_time_steps else options.buffers
            )
            if has_time_steps:
                rows = np.flatnonzero(ipu == home)
                moves += _between_steps(moved_passes, home, number, step, rows, shape.overlapped_io, options.to)
            else:
                moves += _beside_passes(moved_passes, home, number, options.buffers)
    return tuple(moves)


def columns_of(moves: tuple[Move, ...]) -> list[Column]:
    """Return the fields of moves as columns, in field order of :class:`Move`."""
    return list(np.array(moves, np.int64).reshape(len(moves), len(Move._fields)).T)


def most_away(moves: tuple[Move, ...]) -> dict[tuple[int, int], int]:
    """Return the maximum number of micro-batches away at once, by (IPU, stage)."""
    most: dict[tuple[int, int], int] = {}
    for ipu, stage in dict.fromkeys((move.ipu, move.stage) for move in moves):
        stage_moves = [move for move in moves if (move.ipu, move.stage) == (ipu, stage)]
        changes = sorted([(move.forward_row, 1) for move in stage_moves] + [(move.use_row, -1) for move in stage_moves])
        away_counts = np.cumsum([change for _, change in changes])
        most[ipu, stage] = int(away_counts.max())
    return most


def period_of(passes: Column, shape: PlanShape, options: MovedActivations) -> int:
    """Return the period of the pattern of moved and staying micro-batches.

    Args:
        passes: table of an Order, shape (passes, 4).
        shape: shape of the Order.
        options: moved activations.
    """
    ipu, kind, stage, _ = passes.T
    periods, keep = [1], options.most_kept(shape.mapping)
    for number in range(shape.stages):
        for home in shape.ipus_of(number):
            change = np.where(_uses_of(shape, number, kind), -1, kind == Pass.FORWARD)
            most = _most_kept(change[(ipu == home) & (stage == number)])
            periods.append(most // math.gcd(most, keep) if keep and most > keep else 1)
    return math.lcm(*periods) * len(shape.copies)


class _StashPass(NamedTuple):
    """A pass that stores or uses a micro-batch's activations: row, whether the pass uses them, and micro-batch."""

    row: int
    is_use: bool
    micro_batch: int


def _uses_of(shape: PlanShape, stage: int, kind: Column) -> Mask:
    """Mask passes that use the stash of a stage's forward passes."""
    if shape.recomputes_apart(stage):
        recomputes: Mask = kind == Pass.RECOMPUTE
        return recomputes
    return any_of(kind, (Pass.BACKWARD, Pass.INPUT_GRADIENT))


def _most_kept(change: Column) -> int:
    return int(np.cumsum(change).max(initial=0))


def _moved_passes(stash_passes: list[_StashPass], keep: int, buffers: int) -> list[_StashPass]:
    """Return the passes of moved micro-batches; empty if every micro-batch has room.

    Staying micro-batches are spread evenly, so moves overlap their passes.
    """
    most = _most_kept(np.array([-1 if stash_pass.is_use else 1 for stash_pass in stash_passes], np.int64))
    if most <= keep + buffers:
        return []
    staying: set[int] = set()
    moved_passes, rank = [], 0
    for stash_pass in stash_passes:
        if not stash_pass.is_use:
            if rank * keep % most < keep and len(staying) < keep:
                staying.add(stash_pass.micro_batch)
            rank += 1
        if stash_pass.micro_batch not in staying:
            moved_passes.append(stash_pass)
        elif stash_pass.is_use:
            staying.remove(stash_pass.micro_batch)
    return moved_passes


def _beside_passes(moved_passes: list[_StashPass], ipu: int, stage: int, buffers: int) -> Iterator[Move]:
    """Yield moves that overlap passes; micro-batches occupy buffers in order, as soon as a buffer is free."""
    position = {(stash_pass.is_use, stash_pass.micro_batch): number for number, stash_pass in enumerate(moved_passes)}
    for number, stash_pass in enumerate(moved_passes):
        if stash_pass.is_use:
            continue
        micro_batch, use = stash_pass.micro_batch, position[True, stash_pass.micro_batch]
        use_row, previous = moved_passes[use].row, moved_passes[max(use - buffers, number)]
        follower = moved_passes[number + buffers] if number + buffers < use else moved_passes[use]
        yield Move(
            ipu,
            stage,
            micro_batch,
            stash_pass.row,
            use_row,
            back_after_row=previous.row,
            earlier_move=NONE if previous.is_use else previous.micro_batch,
            waiting_row=NONE if follower.is_use else follower.row,
            away_begin=follower.row,
            away_end=previous.row + 1 if previous.is_use else use_row,
        )


def _between_steps(
    moved_passes: list[_StashPass],
    ipu: int,
    stage: int,
    step: Column,
    rows: Column,
    overlapped: bool,
    destination: Destination,
) -> Iterator[Move]:
    """Yield moves in lock-step: directly after and before passes, in merged copies (to a partner), or on I/O tiles."""
    use_row_of = {stash_pass.micro_batch: stash_pass.row for stash_pass in moved_passes if stash_pass.is_use}
    # A moved micro-batch needs at least so many time-steps between its passes.
    distance = 1 if destination == "streaming_memory" and not overlapped else 2 if destination == "partner" else 3
    for stash_pass in moved_passes:
        if stash_pass.is_use or step[use_row_of[stash_pass.micro_batch]] - step[stash_pass.row] < distance:
            continue
        use_row = use_row_of[stash_pass.micro_batch]
        if distance == 1:
            away_begin, away_end = _next_row(rows, stash_pass.row), use_row
        else:
            # Other micro-batches may leave during this move back, so the range ends at the last pass before it.
            move_steps = distance - 2
            away_begin = int(
                np.append(rows, len(step))[np.searchsorted(step[rows], step[stash_pass.row] + 1 + move_steps)]
            )
            away_end = int(rows[np.searchsorted(step[rows], step[use_row] - move_steps) - 1])
        yield Move(ipu, stage, stash_pass.micro_batch, stash_pass.row, use_row, NONE, NONE, NONE, away_begin, away_end)


def _next_row(rows: Column, row: int) -> int:
    """Return the row of the IPU's next pass."""
    return int(rows[np.searchsorted(rows, row) + 1])
