"""Stretches of instructions between meetings of all IPUs, and the end of an execution, for arrays of times."""

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

#: Instructions at which all IPUs of all replicas meet before a weight update.
_BEFORE_UPDATE: Final = (Code.SUM_COPIES, Code.ALL_REDUCE, Code.HOST_SUM, Code.HOST_UPDATE)

_MOVES: Final = (Code.LOAD, Code.STORE, Code.MOVE)
#: Instructions at which replicas meet.
COUPLED: Final = (Code.COLLECTIVE, Code.GATHER)
_RECORDED: Final = (*Pass, Code.UPDATE)
#: Instructions whose cycles the Plan and its prices alone decide.
_TAKES: Final = (*_RECORDED, *COUPLED)
_FEEDS: Final = (Code.INFEED, Code.OUTFEED, Code.BEGIN_IO)


@dataclass
class Record:
    """The begin and the end of instructions of one execution, shape (instructions, replicas); -1 of others.

    Passes, weight updates and tensors that are sent have both.
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
    """One execution under way, of K sets of durations.

    Attributes:
        run: what runs.
        number: of the execution.
        passes: the cycles of its passes.
        streams: the feeds as the executions before have left them.
        record: times of its instructions; None for no record.
        memory: Streaming Memory; None without any.
        further: cycles that each copy between IPUs takes in addition, shape (K,).
        exact: whether the times of each set are exact, shape (K,).
        pipeline: cycles of its pipeline, without the weight update, shape (K,).
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
        """Begin with all times exact."""
        self.exact = np.ones(self.passes.table.shape[-1], bool)

    def is_due(self, period: int) -> bool:
        """Whether results leave in this execution that do so in every ``period``-th."""
        return (self.number + 1) % period == 0

    def moved(self, code: Code, shard: int, now: Cycles) -> Cycles:
        """Return when an IPU has copied the next element of a feed, at once where copies cost nothing."""
        stream = self.streams.get((code, shard))
        return now if stream is None else stream.move(now)


def carry_out(of: Execution, cells: Mapping[int, Sequence[int]], now: Mapping[int, Cycles]) -> dict[int, Cycles]:
    """Return when each IPU has carried out its instructions, one after the other, between two meetings of all.

    Args:
        of: the execution.
        cells: numbers of the instructions of each shard, in the Plan's table.
        now: when each shard begins, in cycles of shape (replicas, K).
    """
    code = of.run.plan.instructions[:, 1]
    moves = {shard: [at for at, row in enumerate(rows) if code[row] in _MOVES] for shard, rows in cells.items()}
    if not any(moves.values()):
        return {shard: _in_turn(of, shard, rows, now[shard])[0] for shard, rows in cells.items()}
    # Feeds come before all transfers of an IPU, or behind them.
    before = {shard: rows[: _first_pass(code, rows)] for shard, rows in cells.items()}
    behind = {
        shard: [row for row in rows if code[row] in (Code.END_IO, Code.OUTFEED_TOTAL)] for shard, rows in cells.items()
    }
    ready = {shard: _in_turn(of, shard, rows, now[shard]) for shard, rows in before.items()}
    between = {shard: rows[len(before[shard]) : len(rows) - len(behind[shard])] for shard, rows in cells.items()}
    ended = _sharing(of, between, {shard: at for shard, (at, _) in ready.items()})
    return {shard: _in_turn(of, shard, rows, ended[shard], ready[shard][1])[0] for shard, rows in behind.items()}


def _first_pass(code: Cycles, rows: Sequence[int]) -> int:
    """Return the place of the first instruction that is no feed's."""
    return next((at for at, row in enumerate(rows) if code[row] not in _FEEDS), len(rows))


def _cycles(of: Execution, shard: int, row: int) -> Cycles:
    """Return the cycles of a pass, a weight update or a meeting of replicas, shape (replicas or 1, K or 1)."""
    run, code = of.run, of.run.plan.instructions[row, 1]
    if code < PASSES:
        cycles: Cycles = of.passes.table[of.passes.rows[row]]
        return cycles
    if code == Code.UPDATE:
        updates = [run.slowed(run.costs.updates[shard], [ipu]) for ipu in run.ipus(shard)[: run.replicas]]
        return np.array(updates)[:, np.newaxis]
    return np.array([[meeting_cycles(run, row)]])


def _sharing(of: Execution, cells: Mapping[int, Sequence[int]], now: Mapping[int, Cycles]) -> dict[int, Cycles]:
    """Return when IPUs have carried out instructions between which they load from and store in Streaming Memory."""
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
    """Return when an IPU has carried out instructions that it begins ``now``, and when its I/O tiles have theirs."""
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
    """Return the cycles for which replicas meet at an instruction, from the arrival of the last one."""
    shard, code, stage, _, number = run.plan.instructions[row].tolist()
    if code == Code.COLLECTIVE:
        costs = [called.cost for called in run.costs.collectives[number, stage]]
    else:
        gathers = run.costs.update_gathers[shard] if stage == NONE else run.costs.weight_gathers[stage]
        costs = [gathers.cost]
    return sum(run.collective_cycles(cost, run.ipus(shard), len(cost.starts)) for cost in costs)


class Ending:
    """The end of each execution: sums of gradients, weight updates, the meeting of all."""

    def __init__(self, run: ExactRun) -> None:
        """Cut the instructions behind the pipeline at those at which all IPUs meet."""
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
        """Whether all IPUs of all replicas meet before a weight update."""
        return bool(self._meetings)

    def carry_out(self, of: Execution, now: Mapping[int, Cycles]) -> Cycles:
        """Return when an execution ends of which each IPU's pipeline ends ``now``, shape (replicas, K)."""
        run, at = self._run, dict(now)
        for meeting, part in zip([*self._meetings, None], self._parts, strict=True):
            at |= carry_out(of, part, at)
            if meeting is not None:
                met: Cycles = np.maximum.reduce([cycles.max(axis=0, keepdims=True) for cycles in at.values()])
                at = dict.fromkeys(at, np.repeat(met + self._cycles(meeting), run.replicas, axis=0))
        last: Cycles = np.maximum.reduce(list(at.values()))
        return np.repeat(last.max(axis=0, keepdims=True), run.replicas, axis=0) if run.together else last

    def _cycles(self, meeting: Code) -> int:
        """Return the cycles of what all IPUs do together before a weight update."""
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
