"""Choose which activations leave their IPU between forward and backward pass, and when they move.

Both lowerings insert the moves into a Plan. Some micro-batches of each stage stay on the IPU; the rest takes turns in a
few buffers. A micro-batch occupies a buffer from the start of its forward pass until the end of the move out, and from
the start of the move back until the end of the pass that uses it. In point-to-point, moves overlap passes. In lock-step
the IPU waits for moves, with two exceptions: moves on I/O tiles overlap the passes of a whole time-step, and moves to
another IPU join the merged copy after a time-step.
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
        ipu, stage, micro_batch: IPU, stage and micro-batch of the forward pass.
        forward_row, use_row: rows of the forward pass, and of the pass that uses the activations.
        back_after_row: row after which the move back begins, in point-to-point; -1 in lock-step.
        earlier_move: number of a micro-batch of the same stage; its move out must end before this move back begins; -1
            if the move back waits for no move out.
        waiting_row: row of the forward pass that waits for the end of this move out; -1 if no forward pass waits.
        away_begin, away_end: half-open range of rows in which the activations are certainly away.
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


def moves_of(passes: Column, shape: PlanShape, options: MovedActivations, *, meets: bool) -> tuple[Move, ...]:
    """Return the moves of one execution, by IPU, stage and forward pass.

    Args:
        passes: table of a Plan, shape (passes, 5).
        shape: shape of the program.
        options: moved activations; its stages have activations of at least one byte.
        meets: whether IPUs meet after each time-step.
    """
    step, ipu, kind, stage, micro_batch = passes.T
    moves: list[Move] = []
    for number in range(shape.stages) if shape.training else ():
        if options.stages is not None and number not in options.stages:
            continue
        uses = _uses_of(shape, number, kind)
        for home in shape.ipus_of(number):
            if options.to == "partner" and options.place(home, shape.mapping) == home:
                continue
            turn_rows = np.flatnonzero((ipu == home) & (stage == number) & (uses | (kind == Pass.FORWARD)))
            columns = zip(turn_rows.tolist(), uses[turn_rows].tolist(), micro_batch[turn_rows].tolist(), strict=True)
            events = list(map(_Turn._make, columns))
            turns = _moving_turns(events, options.most_kept(shape.mapping), 1 if meets else options.buffers)
            if meets:
                rows = np.flatnonzero(ipu == home)
                moves += _between_steps(turns, home, number, step, rows, shape.overlapped_io, options.to)
            else:
                moves += _beside_passes(turns, home, number, options.buffers)
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


class _Turn(NamedTuple):
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


def _moving_turns(events: list[_Turn], keep: int, buffers: int) -> list[_Turn]:
    """Return the passes of moved micro-batches; empty if every micro-batch has room.

    Staying micro-batches are spread evenly, so moves overlap their passes.
    """
    most = _most_kept(np.array([-1 if turn.is_use else 1 for turn in events], np.int64))
    if most <= keep + buffers:
        return []
    staying: set[int] = set()
    turns, rank = [], 0
    for turn in events:
        if not turn.is_use:
            if rank * keep % most < keep and len(staying) < keep:
                staying.add(turn.micro_batch)
            rank += 1
        if turn.micro_batch not in staying:
            turns.append(turn)
        elif turn.is_use:
            staying.remove(turn.micro_batch)
    return turns


def _beside_passes(turns: list[_Turn], ipu: int, stage: int, buffers: int) -> Iterator[Move]:
    """Yield moves that overlap passes; micro-batches occupy buffers in order, as soon as a buffer is free."""
    place = {(turn.is_use, turn.micro_batch): number for number, turn in enumerate(turns)}
    for number, turn in enumerate(turns):
        if turn.is_use:
            continue
        micro_batch, use = turn.micro_batch, place[True, turn.micro_batch]
        use_row, previous = turns[use].row, turns[max(use - buffers, number)]
        follower = turns[number + buffers] if number + buffers < use else turns[use]
        yield Move(
            ipu,
            stage,
            micro_batch,
            turn.row,
            use_row,
            back_after_row=previous.row,
            earlier_move=NONE if previous.is_use else previous.micro_batch,
            waiting_row=NONE if follower.is_use else follower.row,
            away_begin=follower.row,
            away_end=previous.row + 1 if previous.is_use else use_row,
        )


def _between_steps(
    turns: list[_Turn], ipu: int, stage: int, step: Column, rows: Column, overlapped: bool, destination: Destination
) -> Iterator[Move]:
    """Yield moves in lock-step: directly after and before passes, in merged copies (to a partner), or on I/O tiles."""
    taken_of = {turn.micro_batch: turn.row for turn in turns if turn.is_use}
    distance = 1 if destination == "streaming_memory" and not overlapped else 2 if destination == "partner" else 3
    for turn in turns:
        if turn.is_use or step[taken_of[turn.micro_batch]] - step[turn.row] < distance:
            continue
        use_row = taken_of[turn.micro_batch]
        if distance == 1:
            away_begin, away_end = _next_row(rows, turn.row), use_row
        else:
            # Other micro-batches may leave during this move back, so the range ends at the last pass before it.
            ahead = distance - 2
            away_begin = int(np.append(rows, len(step))[np.searchsorted(step[rows], step[turn.row] + 1 + ahead)])
            away_end = int(rows[np.searchsorted(step[rows], step[use_row] - ahead) - 1])
        yield Move(ipu, stage, turn.micro_batch, turn.row, use_row, NONE, NONE, NONE, away_begin, away_end)


def _next_row(rows: Column, row: int) -> int:
    """Return the row of the IPU's next pass."""
    return int(rows[np.searchsorted(rows, row) + 1])
