"""What an IPU does in one execution, as columns: an object for each instruction would cost as much as running it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ipusim.machine.context import Context
from ipusim.machine.delivery import tensor_numbers
from ipusim.pipeline.instructions import NONE, OF_UPDATE, PASSES, Code
from ipusim.timeline.kinds import KIND_OF_PASS


class InstructionColumns(NamedTuple):
    """One IPU's instructions.

    Attributes:
        what, cycles: of each pass, the recorder's description of its span, and its duration; -1 and 0 of others.
        code, stage, micro_batch, number: the instruction; ``number`` of sends and receives is that of their tensor.
        step: the time-step of an execution that its spans belong to.
    """

    what: list[int]
    cycles: list[int]
    code: list[int]
    stage: list[int]
    micro_batch: list[int]
    number: list[int]
    step: list[int]


def instruction_columns(context: Context, replica: int) -> dict[int, InstructionColumns]:
    """Return what each IPU of a replica does, by its number within the replica."""
    plan, costs = context.plan, context.costs
    table = plan.instructions
    shard, code, stage, micro_batch, number = table.T
    prices = np.array([[costs.passes.get((kind, at), 0) for at in range(plan.shape.stages)] for kind in range(PASSES)])
    passes, of_tensor = code < PASSES, np.isin(code, (Code.SEND, Code.BLOCKING_SEND, Code.RECEIVE))
    cycles = np.zeros(len(table), np.int64)
    cycles[passes] = prices[code[passes], stage[passes]]
    count = int(passes.sum())
    first = context.recorder.describe_columns(
        count,
        kind=KIND_OF_PASS[code[passes]],
        ipu=shard[passes] + replica * context.system.shards,
        stage=stage[passes],
        micro_batch=micro_batch[passes],
        replica=replica,
    )
    what = np.full(len(table), NONE)
    what[passes] = np.arange(first, first + count)
    tensor = number.copy()
    taken = code == Code.RECEIVE
    source, target = np.where(taken, number, stage), np.where(taken, stage, number)
    tensor[of_tensor] = tensor_numbers(source, target, micro_batch, plan.shape.micro_batches)[of_tensor]
    ends = np.flatnonzero(np.diff(shard)) + 1
    columns = (what, cycles, code, stage, micro_batch, tensor, _steps(context, ends))
    parts = [np.split(column, ends) for column in columns]
    return {
        int(own[0]): InstructionColumns(*(part[place].tolist() for part in parts))
        for place, own in enumerate(np.split(shard, ends))
    }


def _steps(context: Context, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the time-step of each instruction; those of an IPU begin at each of ``ends``."""
    plan, last = context.plan, context.steps - 1
    _, code, stage, _, number = plan.instructions.T
    met = np.where(code == Code.MEET, number, 0)
    before = np.cumsum(met) - met
    first = np.zeros(len(code), np.int64)
    first[ends] = np.diff(before[ends], prepend=0)
    step = before - np.cumsum(first)
    step[np.isin(code, OF_UPDATE) & (stage == NONE)] = last
    # Where results leave behind a meeting, they belong to the time-step before it; so does their sum without an update.
    step[code == Code.OUTFEED] -= plan.sync.meets
    step[code == Code.OUTFEED_TOTAL] -= not plan.shape.training
    return step
