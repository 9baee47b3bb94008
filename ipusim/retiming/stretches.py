"""Compute end times of IPUs' instructions between two meetings, and the end of an execution.

A meeting is joint work of IPUs after waiting for the last IPU, such as a sum of gradients.

Times are arrays over replicas and K sets of durations. A shard is an IPU's number within its replica.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ipusim.base.errors import NotExactError
from ipusim.pipeline.instructions import NONE, PASSES, Code
from ipusim.pipeline.ops import Pass
from ipusim.retiming.exact_run import ExactRun, PassCycles, body_and_ending
from ipusim.retiming.host_streams import Streams
from ipusim.retiming.scaled_cycles import Cycles
from ipusim.retiming.shared_memory import SharedMemory, moved_bytes

#: Instructions of a joint meeting of IPUs and replicas before a weight update.
_BEFORE_UPDATE: Final = (Code.SUM_COPIES, Code.ALL_REDUCE, Code.HOST_SUM, Code.HOST_UPDATE)

#: Instructions with transfers from or to Streaming Memory.
_MOVES: Final = (Code.LOAD, Code.STORE, Code.MOVE)
#: Instructions of a meeting of replicas.
REPLICA_MEETINGS: Final = (Code.COLLECTIVE, Code.GATHER)
#: Instructions with recorded times.
_RECORDED_CODES: Final = (*Pass, Code.UPDATE)
#: Instructions whose cycles depend only on the Plan and its costs.
_FIXED_CYCLES_CODES: Final = (*_RECORDED_CODES, *REPLICA_MEETINGS)
#: Instructions with host copies before passes.
_FEEDS: Final = (Code.INFEED, Code.OUTFEED, Code.BEGIN_IO)


@dataclass
class Record:
    """Begin and end of an execution's instructions, shape (instructions, replicas).

    Only passes, weight updates and sent tensors have times; other entries are -1.
    """

    start: Cycles
    end: Cycles

    @classmethod
    def empty(cls, run: ExactRun) -> Record:
        """Return the record of an execution that has not begun."""
        shape = len(run.plan.instructions), run.replicas
        return cls(np.full(shape, NONE), np.full(shape, NONE))

    def note(self, rows: Cycles | int, start: Cycles, end: Cycles) -> None:
        """Note the times of instructions, shape (..., replicas, 1)."""
        self.start[rows], self.end[rows] = start[..., 0], end[..., 0]


@dataclass
class Execution:
    """An execution under way, for K sets of durations.

    Attributes:
        run: the run.
        number: number of the execution.
        passes: cycles of the passes.
        streams: streams between host and IPUs, in the state after the previous executions.
        record: times of instructions; None to record no times.
        memory: Streaming Memory; None if no bytes are streamed, or replicas do not meet.
        further: additional cycles of every copy between IPUs, shape (K,).
        exact: whether the times of every set are exact, shape (K,).
        pipeline: cycles of the pipeline, without the weight update, shape (K,).
    """

    run: ExactRun
    number: int
    passes: PassCycles
    streams: Streams
    further: Cycles
    record: Record | None = None
    memory: SharedMemory | None = None
    exact: Cycles = field(init=False)
    pipeline: Cycles = field(init=False)

    def __post_init__(self) -> None:
        """Begin with exact times."""
        self.exact = np.ones(self.passes.table.shape[-1], bool)

    def is_due(self, period: int) -> bool:
        """Whether results with a period of ``period`` executions leave in this execution."""
        return (self.number + 1) % period == 0

    def move_feed(self, code: Code, shard: int, time: Cycles) -> Cycles:
        """Return the end of a feed's next copy; ``time`` if copies are free."""
        stream = self.streams.get((code, shard))
        return time if stream is None else stream.move(time)


def carry_out(
    execution: Execution, cells: Mapping[int, Sequence[int]], starts: Mapping[int, Cycles]
) -> dict[int, Cycles]:
    """Return the end of every IPU's instructions between two joint meetings.

    Args:
        execution: the execution.
        cells: numbers of the instructions in the Plan's table, by shard.
        starts: begin of every shard, in cycles of shape (replicas, K).
    """
    code = execution.run.codes
    moves = {shard: [index for index, row in enumerate(rows) if code[row] in _MOVES] for shard, rows in cells.items()}
    if not any(moves.values()):
        return {shard: _run_in_sequence(execution, shard, rows, starts[shard])[0] for shard, rows in cells.items()}
    # Feeds of an IPU come before or after the transfers.
    leading = {shard: rows[: _first_pass(code, rows)] for shard, rows in cells.items()}
    trailing = {
        shard: [row for row in rows if code[row] in (Code.END_IO, Code.OUTFEED_TOTAL)] for shard, rows in cells.items()
    }
    ready = {shard: _run_in_sequence(execution, shard, rows, starts[shard]) for shard, rows in leading.items()}
    middle = {shard: rows[len(leading[shard]) : len(rows) - len(trailing[shard])] for shard, rows in cells.items()}
    ends = _run_sharing_memory(execution, middle, {shard: end for shard, (end, _) in ready.items()})
    return {
        shard: _run_in_sequence(execution, shard, rows, ends[shard], ready[shard][1])[0]
        for shard, rows in trailing.items()
    }


def _first_pass(code: Sequence[int], rows: Sequence[int]) -> int:
    """Return the index of the first instruction other than feeds."""
    return next((index for index, row in enumerate(rows) if code[row] not in _FEEDS), len(rows))


def _cycles(execution: Execution, shard: int, row: int) -> Cycles:
    """Return the cycles of a pass, an update or a meeting of replicas. The shape is (replicas or 1, K or 1)."""
    run, code = execution.run, execution.run.codes[row]
    if code < PASSES:
        cycles: Cycles = execution.passes.table[execution.passes.rows[row]]
        return cycles
    if code == Code.UPDATE:
        updates = [run.slowed_cycles(run.costs.updates[shard], [ipu]) for ipu in run.ipus(shard)[: run.replicas]]
        return np.array(updates)[:, np.newaxis]
    return np.array([[meeting_cycles(run, row)]])


def _run_sharing_memory(
    execution: Execution, cells: Mapping[int, Sequence[int]], starts: Mapping[int, Cycles]
) -> dict[int, Cycles]:
    """Return the end of IPUs' instructions, among them transfers from and to Streaming Memory."""
    run, code = execution.run, execution.run.codes
    if execution.memory is None:
        raise NotExactError("transfers from and to Streaming Memory of several replicas that do not meet")
    ends = {shard: start.copy() for shard, start in starts.items()}
    replica_and_shard = {ipu: (replica, shard) for shard in cells for replica, ipu in enumerate(run.ipus(shard))}
    pass_cycles = {
        row: np.broadcast_to(_cycles(execution, shard, row), starts[shard].shape)
        for shard, rows in cells.items()
        for row in rows
        if code[row] in _FIXED_CYCLES_CODES
    }
    sizes = {row: moved_bytes(run, row) for rows in cells.values() for row in rows if code[row] in _MOVES}
    for column in range(len(execution.exact)):
        parts = {
            ipu: [
                (
                    row,
                    sizes.get(row, 0),
                    int(pass_cycles[row][replica, column]) if row in pass_cycles else 0,
                    code[row] in REPLICA_MEETINGS,
                )
                for row in cells[shard]
                if row in pass_cycles or row in sizes
            ]
            for ipu, (replica, shard) in replica_and_shard.items()
        }
        starts_of_ipus = {
            ipu: int(starts[shard][replica, column]) for ipu, (replica, shard) in replica_and_shard.items()
        }
        for (ipu, row), (begin, end) in execution.memory.carry_out(parts, starts_of_ipus).items():
            replica, shard = replica_and_shard[ipu]
            ends[shard][replica, column] = max(ends[shard][replica, column], end)
            if execution.record is not None and code[row] in _RECORDED_CODES:
                execution.record.start[row, replica], execution.record.end[row, replica] = begin, end
    return ends


def _run_in_sequence(
    execution: Execution, shard: int, rows: Sequence[int], time: Cycles, io_end: Cycles | None = None
) -> tuple[Cycles, Cycles]:
    """Return the end of an IPU's instructions, and of its I/O tiles' copies. The instructions begin at ``time``."""
    io_end = time if io_end is None else io_end
    for row in rows:
        _, code, stage, micro_batch, number = execution.run.plan.instructions[row].tolist()
        start = time
        if code in _FIXED_CYCLES_CODES:
            ready = np.broadcast_to(time.max(axis=0), time.shape) if code in REPLICA_MEETINGS else time
            time = ready + _cycles(execution, shard, row)
        elif code == Code.BEGIN_IO:
            io_end = (
                execution.move_feed(Code.OUTFEED, shard, time) if number != NONE and execution.is_due(stage) else time
            )
            io_end = execution.move_feed(Code.INFEED, shard, io_end) if micro_batch != NONE else io_end
        elif code == Code.END_IO:
            time = np.maximum(time, io_end)
        elif code == Code.INFEED:
            time = execution.move_feed(Code.INFEED, shard, time)
        elif code == Code.OUTFEED_TOTAL or (code == Code.OUTFEED and execution.is_due(number)):
            time = execution.move_feed(Code.OUTFEED, shard, time)
        if execution.record is not None and code in _RECORDED_CODES:
            execution.record.note(row, start, time)
    return time, io_end


def meeting_cycles(run: ExactRun, row: int) -> int:
    """Return the cycles of a meeting of replicas, from the last arrival."""
    shard, code, stage, _, number = run.plan.instructions[row].tolist()
    if code == Code.COLLECTIVE:
        costs = [call.cost for call in run.costs.collectives[number, stage]]
    else:
        gathers = run.costs.update_gathers[shard] if stage == NONE else run.costs.weight_gathers[stage]
        costs = [gathers.cost]
    return sum(run.collective_cycles(cost, run.ipus(shard)) for cost in costs)


class Ending:
    """The end of every execution: sums of gradients, weight updates, final meeting."""

    def __init__(self, run: ExactRun) -> None:
        """Cut the instructions after the pipeline at joint meetings."""
        self._run = run
        rows = body_and_ending(run.plan)[1]
        ipu, code = run.plan.instructions[rows, :2].T
        self._meetings = [meeting for meeting in _BEFORE_UPDATE if (code == meeting).any()]
        is_meeting = np.isin(code, _BEFORE_UPDATE)
        part: Cycles = np.cumsum(is_meeting) - is_meeting
        self._parts: list[dict[int, list[int]]] = [{} for _ in range(len(self._meetings) + 1)]
        for shard in run.plan.ipus:
            indices = np.flatnonzero(ipu == shard)
            for index in indices[~is_meeting[indices]].tolist():
                self._parts[part[index] - part[indices[0]]].setdefault(shard, []).append(int(rows[index]))

    @property
    def has_joint_meeting(self) -> bool:
        """Whether IPUs and replicas meet jointly before a weight update."""
        return bool(self._meetings)

    def carry_out(self, execution: Execution, pipeline_ends: Mapping[int, Cycles]) -> Cycles:
        """Return the end of an execution, from the end of every IPU's pipeline, ``pipeline_ends``.

        Times have shape (replicas, K).
        """
        run, ends = self._run, dict(pipeline_ends)
        for meeting, part in zip([*self._meetings, None], self._parts, strict=True):
            ends |= carry_out(execution, part, ends)
            if meeting is not None:
                last_arrival: Cycles = np.maximum.reduce(
                    [cycles.max(axis=0, keepdims=True) for cycles in ends.values()]
                )
                ends = dict.fromkeys(ends, np.repeat(last_arrival + self._cycles(meeting), run.replicas, axis=0))
        last: Cycles = np.maximum.reduce(list(ends.values()))
        return np.repeat(last.max(axis=0, keepdims=True), run.replicas, axis=0) if run.replicas_meet else last

    def _cycles(self, meeting: Code) -> int:
        """Return the cycles of the joint work in a meeting before a weight update."""
        run, costs = self._run, self._run.costs
        if meeting == Code.HOST_SUM and costs.host_sum is not None:
            host_sum = costs.host_sum
            if host_sum.over_links is not None:
                return run.collective_cycles(host_sum.over_links.cost, run.all_ipus)
            return int(host_sum.write) + int(host_sum.network) + int(host_sum.read)
        if meeting == Code.HOST_UPDATE and costs.host_update is not None:
            return int(costs.host_update.write) + int(costs.host_update.apply) + int(costs.host_update.read)
        total = costs.copy_sum if meeting == Code.SUM_COPIES else costs.gradient_sum
        assert total is not None
        return run.collective_cycles(total.cost, run.all_ipus)
