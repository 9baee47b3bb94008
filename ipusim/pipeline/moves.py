"""Activations that are moved off their IPU behind a forward pass, and back before the pass that uses them.

Of each stage some micro-batches stay, and the others take turns in a few buffers: a micro-batch is in a buffer from
the start of its forward pass until it is moved out, and from the moment in which it begins to come back until the pass
that uses it ends. In point-to-point moves run beside passes. In lock-step the IPU waits for them, unless they run on
I/O tiles, beside the passes of a whole time-step, or go to another IPU with the merged copy behind a time-step.
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
    """The direction of a move, the ``number`` of its instructions."""

    OUT = 0
    BACK = 1


class Move(NamedTuple):
    """One micro-batch's activations of a stage, moved out and back. Rows are those of a Plan's passes.

    Attributes:
        ipu, stage, micro_batch: the IPU, the stage and the micro-batch of the forward pass.
        forward, taken: rows of the forward pass and of the pass that uses them.
        fetched: row behind which they begin to come back, in point-to-point.
        after: micro-batch of the same stage whose move out ends before they come back; -1 for none.
        freed_for: row of the forward pass before which the move out has ended; -1 where none waits for it.
        gone, there: rows from the first pass in which they are certainly away to the first in which they may be back.
    """

    ipu: int
    stage: int
    micro_batch: int
    forward: int
    taken: int
    fetched: int
    after: int
    freed_for: int
    gone: int
    there: int


def moves_of(passes: Column, shape: PlanShape, moved: MovedActivations, *, meets: bool) -> tuple[Move, ...]:
    """Return the moves of one execution, by IPU and stage, in the order of forward passes.

    Args:
        passes: the table of a Plan, shape (passes, 5).
        shape: of the program.
        moved: what is moved; of the stages that have any bytes of activations.
        meets: whether IPUs meet after each time-step.
    """
    step, ipu, kind, stage, micro_batch = passes.T
    found: list[Move] = []
    for number in range(shape.stages) if shape.training else ():
        if moved.stages is not None and number not in moved.stages:
            continue
        taking = _taking(shape, number, kind)
        for home in shape.ipus_of(number):
            if moved.to == "partner" and moved.place(home, shape.mapping) == home:
                continue
            own = np.flatnonzero((ipu == home) & (stage == number) & (taking | (kind == Pass.FORWARD)))
            columns = zip(own.tolist(), taking[own].tolist(), micro_batch[own].tolist(), strict=True)
            events = list(map(_Turn._make, columns))
            chosen = _chosen(events, moved.kept(shape.mapping), 1 if meets else moved.buffers)
            if meets:
                rows = np.flatnonzero(ipu == home)
                found += _between_steps(chosen, home, number, step, rows, shape.overlapped_io, moved.to)
            else:
                found += _beside_passes(chosen, home, number, moved.buffers)
    return tuple(found)


def columns_of(moves: tuple[Move, ...]) -> list[Column]:
    """Return the fields of moves as columns, in the order of :class:`Move`."""
    return list(np.array(moves, np.int64).reshape(len(moves), len(Move._fields)).T)


def most_away(moves: tuple[Move, ...]) -> dict[tuple[int, int], int]:
    """Return the most micro-batches that each (IPU, stage) has elsewhere at once: the room that is held for them."""
    most: dict[tuple[int, int], int] = {}
    for ipu, stage in dict.fromkeys((move.ipu, move.stage) for move in moves):
        own = [move for move in moves if (move.ipu, move.stage) == (ipu, stage)]
        changes = sorted([(move.forward, 1) for move in own] + [(move.taken, -1) for move in own])
        away = np.cumsum([change for _, change in changes])
        most[ipu, stage] = int(away.max())
    return most


def period_of(passes: Column, shape: PlanShape, moved: MovedActivations) -> int:
    """Return the number of micro-batches after which moved micro-batches and others follow each other the same way.

    Args:
        passes: of an Order, shape (passes, 4).
        shape: of the Order.
        moved: what is moved.
    """
    ipu, kind, stage, _ = passes.T
    periods, kept = [1], moved.kept(shape.mapping)
    for number in range(shape.stages):
        for home in shape.ipus_of(number):
            change = np.where(_taking(shape, number, kind), -1, kind == Pass.FORWARD)
            most = _most_kept(change[(ipu == home) & (stage == number)])
            periods.append(most // math.gcd(most, kept) if kept and most > kept else 1)
    return math.lcm(*periods) * len(shape.copies)


class _Turn(NamedTuple):
    """A pass that keeps a micro-batch or uses it: its row, whether it uses what was kept, and the micro-batch."""

    row: int
    takes: bool
    micro_batch: int


def _taking(shape: PlanShape, stage: int, kind: Column) -> Mask:
    """Return which passes use what the forward passes of a stage have kept."""
    if shape.recompute and shape.recomputes(stage):
        again: Mask = kind == Pass.RECOMPUTE
        return again
    return any_of(kind, (Pass.BACKWARD, Pass.INPUT_GRADIENT))


def _most_kept(change: Column) -> int:
    return int(np.cumsum(change).max(initial=0))


def _chosen(events: list[_Turn], keep: int, buffers: int) -> list[_Turn]:
    """Return the passes of micro-batches that are moved; none where all have room.

    Micro-batches that stay are spread evenly, so that moves of the others run beside passes over them.
    """
    most = _most_kept(np.array([-1 if turn.takes else 1 for turn in events], np.int64))
    if most <= keep + buffers:
        return []
    staying: set[int] = set()
    turns, rank = [], 0
    for turn in events:
        if not turn.takes:
            if rank * keep % most < keep and len(staying) < keep:
                staying.add(turn.micro_batch)
            rank += 1
        if turn.micro_batch not in staying:
            turns.append(turn)
        elif turn.takes:
            staying.remove(turn.micro_batch)
    return turns


def _beside_passes(turns: list[_Turn], ipu: int, stage: int, buffers: int) -> Iterator[Move]:
    """Yield moves beside passes: the turns go round the buffers, and each begins when its buffer is free."""
    place = {(turn.takes, turn.micro_batch): number for number, turn in enumerate(turns)}
    for number, turn in enumerate(turns):
        if turn.takes:
            continue
        micro_batch, back = turn.micro_batch, place[True, turn.micro_batch]
        taken, before = turns[back].row, turns[max(back - buffers, number)]
        follower = turns[number + buffers] if number + buffers < back else turns[back]
        yield Move(
            ipu,
            stage,
            micro_batch,
            turn.row,
            taken,
            fetched=before.row,
            after=NONE if before.takes else before.micro_batch,
            freed_for=NONE if follower.takes else follower.row,
            gone=follower.row,
            there=before.row + 1 if before.takes else taken,
        )


def _between_steps(
    turns: list[_Turn], ipu: int, stage: int, step: Column, rows: Column, overlapped: bool, to: Destination
) -> Iterator[Move]:
    """Yield moves in lock-step: at once, with the copies between time-steps, or in time-steps of their own."""
    taken_of = {turn.micro_batch: turn.row for turn in turns if turn.takes}
    apart = 1 if to == "streaming_memory" and not overlapped else 2 if to == "partner" else 3
    for turn in turns:
        if turn.takes or step[taken_of[turn.micro_batch]] - step[turn.row] < apart:
            continue
        taken = taken_of[turn.micro_batch]
        if apart == 1:
            gone, there = _behind(rows, turn.row), taken
        else:
            # Others may go out while these come back: these count from the last pass before they do.
            ahead = apart - 2
            gone = int(np.append(rows, len(step))[np.searchsorted(step[rows], step[turn.row] + 1 + ahead)])
            there = int(rows[np.searchsorted(step[rows], step[taken] - ahead) - 1])
        yield Move(ipu, stage, turn.micro_batch, turn.row, taken, NONE, NONE, NONE, gone, there)


def _behind(rows: Column, row: int) -> int:
    """Return the row of the next pass of an IPU."""
    return int(rows[np.searchsorted(rows, row) + 1])
