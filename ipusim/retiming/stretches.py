"""Instructions between joint meetings, and an execution's end, for arrays of times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ipusim.base.errors import NotExactError
from ipusim.pipeline.instructions import NONE, PASSES, Code
from ipusim.pipeline.ops import Pass
from ipusim.retiming.exact_run import Cycles, ExactRun, PassCycles, body_and_ending
from ipusim.retiming.host_streams import Streams
from ipusim.retiming.shared_memory import SharedMemory, moved_bytes

#: Instructions of a joint meeting of IPUs and replicas before a weight update.
_BEFORE_UPDATE: Final = (Code.SUM_COPIES, Code.ALL_REDUCE, Code.HOST_SUM, Code.HOST_UPDATE)

_MOVES: Final = (Code.LOAD, Code.STORE, Code.MOVE)
#: Instructions of a meeting of replicas.
COUPLED: Final = (Code.COLLECTIVE, Code.GATHER)
_RECORDED: Final = (*Pass, Code.UPDATE)
#: Instructions whose cycles depend only on the Plan and its costs.
_TAKES: Final = (*_RECORDED, *COUPLED)
_FEEDS: Final = (Code.INFEED, Code.OUTFEED, Code.BEGIN_IO)


@dataclass
class Record:
    """Begin and end of the instructions of an execution, shape (instructions, replicas).

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
        streams: feeds after the previous executions.
        record: times of instructions; None without a record.
        memory: Streaming Memory; None without any.
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

    def moved(self, code: Code, shard: int, now: Cycles) -> Cycles:
        """Return the end of a feed's next copy; ``now`` if copies are free."""
        stream = self.streams.get((code, shard))
        return now if stream is None else stream.move(now)


def carry_out(of: Execution, cells: Mapping[int, Sequence[int]], now: Mapping[int, Cycles]) -> dict[int, Cycles]:
    """Return the end of every IPU's instructions between two joint meetings.

    Args:
        of: the execution.
        cells: numbers of every shard's instructions, in the Plan's table.
        now: begin of every shard, in cycles of shape (replicas, K).
    """
    code = of.run.plan.instructions[:, 1]
    moves = {shard: [at for at, row in enumerate(rows) if code[row] in _MOVES] for shard, rows in cells.items()}
    if not any(moves.values()):
        return {shard: _in_turn(of, shard, rows, now[shard])[0] for shard, rows in cells.items()}
    # Feeds of an IPU come before or after the transfers.
    before = {shard: rows[: _first_pass(code, rows)] for shard, rows in cells.items()}
    behind = {
        shard: [row for row in rows if code[row] in (Code.END_IO, Code.OUTFEED_TOTAL)] for shard, rows in cells.items()
    }
    ready = {shard: _in_turn(of, shard, rows, now[shard]) for shard, rows in before.items()}
    between = {shard: rows[len(before[shard]) : len(rows) - len(behind[shard])] for shard, rows in cells.items()}
    ended = _sharing(of, between, {shard: at for shard, (at, _) in ready.items()})
    return {shard: _in_turn(of, shard, rows, ended[shard], ready[shard][1])[0] for shard, rows in behind.items()}


def _first_pass(code: Cycles, rows: Sequence[int]) -> int:
    """Return the index of the first instruction other than feeds."""
    return next((at for at, row in enumerate(rows) if code[row] not in _FEEDS), len(rows))


def _cycles(of: Execution, shard: int, row: int) -> Cycles:
    """Return the cycles of a pass, an update or a meeting of replicas.

    The shape is (replicas or 1, K or 1).
    """
    run, code = of.run, of.run.plan.instructions[row, 1]
    if code < PASSES:
        cycles: Cycles = of.passes.table[of.passes.rows[row]]
        return cycles
    if code == Code.UPDATE:
        updates = [run.slowed(run.costs.updates[shard], [ipu]) for ipu in run.ipus(shard)[: run.replicas]]
        return np.array(updates)[:, np.newaxis]
    return np.array([[meeting_cycles(run, row)]])


def _sharing(of: Execution, cells: Mapping[int, Sequence[int]], now: Mapping[int, Cycles]) -> dict[int, Cycles]:
    """Return the end of IPUs' instructions that include transfers from and to Streaming Memory."""
    run, code = of.run, of.run.plan.instructions[:, 1]
    if of.memory is None:
        raise NotExactError("transfers from and to Streaming Memory of several replicas that do not meet")
    ends = {shard: start.copy() for shard, start in now.items()}
    agents = {ipu: (place, shard) for shard in cells for place, ipu in enumerate(run.ipus(shard))}
    taken = {
        row: np.broadcast_to(_cycles(of, shard, row), now[shard].shape)
        for shard, rows in cells.items()
        for row in rows
        if code[row] in _TAKES
    }
    moved = {row: moved_bytes(run, row) for rows in cells.values() for row in rows if code[row] in _MOVES}
    for column in range(len(of.exact)):
        parts = {
            ipu: [
                (row, moved.get(row, 0), int(taken[row][place, column]) if row in taken else 0, code[row] in COUPLED)
                for row in cells[shard]
                if row in taken or row in moved
            ]
            for ipu, (place, shard) in agents.items()
        }
        starts = {ipu: int(now[shard][place, column]) for ipu, (place, shard) in agents.items()}
        for (ipu, row), (begin, end) in of.memory.carry_out(parts, starts).items():
            place, shard = agents[ipu]
            ends[shard][place, column] = max(ends[shard][place, column], end)
            if of.record is not None and code[row] in _RECORDED:
                of.record.start[row, place], of.record.end[row, place] = begin, end
    return ends


def _in_turn(
    of: Execution, shard: int, rows: Sequence[int], now: Cycles, beside: Cycles | None = None
) -> tuple[Cycles, Cycles]:
    """Return the end of an IPU's instructions, and of its I/O tiles' copies.

    The instructions begin at ``now``.
    """
    beside = now if beside is None else beside
    for row in rows:
        _, code, stage, micro_batch, number = of.run.plan.instructions[row].tolist()
        before = now
        if code in _TAKES:
            ready = np.broadcast_to(now.max(axis=0), now.shape) if code in COUPLED else now
            now = ready + _cycles(of, shard, row)
        elif code == Code.BEGIN_IO:
            beside = of.moved(Code.OUTFEED, shard, now) if number != NONE and of.is_due(stage) else now
            beside = of.moved(Code.INFEED, shard, beside) if micro_batch != NONE else beside
        elif code == Code.END_IO:
            now = np.maximum(now, beside)
        elif code == Code.INFEED:
            now = of.moved(Code.INFEED, shard, now)
        elif code == Code.OUTFEED_TOTAL or (code == Code.OUTFEED and of.is_due(number)):
            now = of.moved(Code.OUTFEED, shard, now)
        if of.record is not None and code in _RECORDED:
            of.record.note(row, before, now)
    return now, beside


def meeting_cycles(run: ExactRun, row: int) -> int:
    """Return the cycles of a meeting of replicas, from the last arrival."""
    shard, code, stage, _, number = run.plan.instructions[row].tolist()
    if code == Code.COLLECTIVE:
        costs = [called.cost for called in run.costs.collectives[number, stage]]
    else:
        gathers = run.costs.update_gathers[shard] if stage == NONE else run.costs.weight_gathers[stage]
        costs = [gathers.cost]
    return sum(run.collective_cycles(cost, run.ipus(shard), len(cost.starts)) for cost in costs)


class Ending:
    """The end of every execution: sums of gradients, weight updates, final meeting."""

    def __init__(self, run: ExactRun) -> None:
        """Cut the instructions after the pipeline at joint meetings."""
        self._run = run
        rows = body_and_ending(run.plan)[1]
        ipu, code = run.plan.instructions[rows, :2].T
        self._meetings = [each for each in _BEFORE_UPDATE if (code == each).any()]
        meets = np.isin(code, _BEFORE_UPDATE)
        part: Cycles = np.cumsum(meets) - meets
        self._parts: list[dict[int, list[int]]] = [{} for _ in range(len(self._meetings) + 1)]
        for shard in run.plan.ipus:
            own = np.flatnonzero(ipu == shard)
            for at in own[~meets[own]].tolist():
                self._parts[part[at] - part[own[0]]].setdefault(shard, []).append(int(rows[at]))

    @property
    def meets(self) -> bool:
        """Whether IPUs and replicas meet jointly before a weight update."""
        return bool(self._meetings)

    def carry_out(self, of: Execution, now: Mapping[int, Cycles]) -> Cycles:
        """Return the end of an execution, given every pipeline's end ``now``.

        Times have shape (replicas, K).
        """
        run, at = self._run, dict(now)
        for meeting, part in zip([*self._meetings, None], self._parts, strict=True):
            at |= carry_out(of, part, at)
            if meeting is not None:
                met: Cycles = np.maximum.reduce([cycles.max(axis=0, keepdims=True) for cycles in at.values()])
                at = dict.fromkeys(at, np.repeat(met + self._cycles(meeting), run.replicas, axis=0))
        last: Cycles = np.maximum.reduce(list(at.values()))
        return np.repeat(last.max(axis=0, keepdims=True), run.replicas, axis=0) if run.replicas_meet else last

    def _cycles(self, meeting: Code) -> int:
        """Return the cycles of the joint work in a meeting before a weight update."""
        run, costs = self._run, self._run.costs
        if meeting == Code.HOST_SUM and costs.host_sum is not None:
            over = costs.host_sum
            if over.over_links is not None:
                return run.collective_cycles(over.over_links.cost, run.all_ipus)
            return int(over.write) + int(over.network) + int(over.read)
        if meeting == Code.HOST_UPDATE and costs.host_update is not None:
            return int(costs.host_update.write) + int(costs.host_update.apply) + int(costs.host_update.read)
        total = costs.copy_sum if meeting == Code.SUM_COPIES else costs.gradient_sum
        assert total is not None
        return run.collective_cycles(total.cost, run.all_ipus, len(total.cost.starts))
