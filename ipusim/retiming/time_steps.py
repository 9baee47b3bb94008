"""Compute the times of a run in lock-step without event simulation: the slowest IPU ends each time-step.

After each time-step comes a merged copy. Times are arrays over replicas and K sets of durations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from ipusim.pipeline.instructions import PASSES, Code, any_of
from ipusim.retiming.exact_run import ExactRun, body_and_ending
from ipusim.retiming.host_streams import Streams
from ipusim.retiming.scaled_cycles import Cycles
from ipusim.retiming.stretches import Execution, carry_out

#: Maximum number of array elements in memory at once.
_MOST_NUMBERS: int = 2**22


class StepTimes:
    """The time-steps of an execution.

    A cell is an IPU in a time-step. Plain cells contain only passes; other cells run instruction by instruction.
    """

    def __init__(self, run: ExactRun, streams: Streams) -> None:
        """Sort the instructions of a run into cells."""
        self._run, plan = run, run.plan
        body, _ = body_and_ending(plan)
        ipu, code, _, _, number = plan.instructions.T
        meetings = np.where(code == Code.MEET, number, 0)
        meetings_before = np.cumsum(meetings) - meetings
        first = meetings_before[np.searchsorted(ipu, ipu)]
        steps, shards = plan.emitted + 1, np.array(plan.ipus)
        self._shards = shards
        takes_no_time = any_of(code, (Code.MEET, Code.RELEASE, Code.ADD_RESULTS, Code.MOVED))
        takes_no_time |= (code == Code.MOVE) & (not run.has_streams)
        for feed_code in (Code.INFEED, Code.OUTFEED):
            feed_shards = [shard for kind, shard in streams if kind is feed_code]
            takes_no_time |= (code == feed_code) & ~np.isin(ipu, feed_shards)
        rows = body[~takes_no_time[body]]
        cell = (meetings_before - first)[rows] * len(shards) + np.searchsorted(shards, ipu[rows])
        order = np.argsort(cell, kind="stable")
        rows, cell = rows[order], cell[order]
        begins = np.flatnonzero(np.r_[True, np.diff(cell) != 0][: len(cell)])
        size = np.diff(np.r_[begins, len(cell)])
        is_plain = np.logical_and.reduceat(code[rows] < PASSES, begins) if len(rows) else np.zeros(0, bool)
        #: Instructions of cells that are not plain, by time-step and IPU.
        self._mixed_cells: dict[int, dict[int, list[int]]] = {}
        for begin, count in zip(begins[~is_plain].tolist(), size[~is_plain].tolist(), strict=True):
            step, shard = divmod(int(cell[begin]), len(shards))
            self._mixed_cells.setdefault(step, {})[int(shards[shard])] = rows[begin : begin + count].tolist()
        #: Passes of plain cells, shape (time-steps, IPUs, passes); -1 for no pass.
        self._passes = np.full((steps, len(shards), int(size[is_plain].max(initial=1))), -1)
        in_plain = np.repeat(is_plain, size)
        position = np.arange(len(rows)) - np.repeat(begins, size)
        self._passes.reshape(-1, self._passes.shape[2])[cell[in_plain], position[in_plain]] = rows[in_plain]

    @cached_property
    def _copies(self) -> Cycles:
        """Cycles of the copy after every time-step.

        The shape is (time-steps + 1, replicas, 1); the last time-step has no copy.
        """
        run = self._run
        groups: list[Sequence[int]] = [run.all_ipus]
        if not run.replicas_meet:
            groups = [[run.ipus(shard)[replica] for shard in run.plan.ipus] for replica in range(run.replicas)]
        by_group = zip(run.costs.copies.by_group, groups, strict=False)
        cycles = np.array([[run.copy_cycles(copy, ipus) for copy in copies] for copies, ipus in by_group], np.int64)
        steps = cycles[:, np.array(run.costs.copies.copy_of, np.int64)].T
        copy_cycles = np.zeros((len(steps) + 1, run.replicas, 1), np.int64)
        copy_cycles[:-1] = steps[..., np.newaxis]
        return copy_cycles

    @cached_property
    def _groups_of_steps(self) -> tuple[Cycles, Cycles]:
        """First time-step of every group of equal time-steps, and the group of every time-step.

        Time-steps of a group have passes of the same kinds and stages, on every IPU.
        """
        if self._run.slower or self._run.jitters:  # as passes differ in their cycles, no time-steps are equal
            return np.arange(len(self._passes)), np.arange(len(self._passes))
        index = self._run.cycles(self._run.durations, 0).rows[self._passes]
        _, first, group = np.unique(index.reshape(len(index), -1), axis=0, return_index=True, return_inverse=True)
        return first, group.ravel()

    def _slowest_cells(self, execution: Execution) -> Cycles:
        """Return the cycles of the slowest plain cell per time-step, shape (time-steps, replicas, K)."""
        table = execution.passes.table
        # Grouping time-steps takes longer than summing every time-step for a single set of durations.
        first, group = self._groups_of_steps if table.shape[2] > 1 else (slice(None), slice(None))
        index = execution.passes.rows[self._passes[first]]
        chunk_size = max(1, _MOST_NUMBERS // max(1, index[0].size * table[0].size))
        parts = [
            table[index[begin : begin + chunk_size]].sum(axis=2).max(axis=1)
            for begin in range(0, len(index), chunk_size)
        ]
        longest: Cycles = np.concatenate(parts)[group]
        return longest

    def carry_out(self, execution: Execution, start: Cycles) -> Mapping[int, Cycles]:
        """Return the end of every IPU's pipeline, for an execution begun in ``start``.

        Times have shape (replicas, K).
        """
        run, mixed_cells = self._run, self._mixed_cells
        step_cycles = np.repeat(self._slowest_cells(execution), run.replicas // execution.passes.table.shape[1], axis=1)
        if run.replicas_meet:
            step_cycles = np.repeat(step_cycles.max(axis=1, keepdims=True), run.replicas, axis=1)
        copies = self._copies + np.where(self._copies > 0, execution.further, 0)
        step_cycles += copies
        # Consecutive time-steps with plain cells only are summed at once.
        begins = np.empty_like(step_cycles)
        begin, next_step = start, 0
        for step in [*sorted(mixed_cells), len(step_cycles) - 1]:
            ends = begin + np.cumsum(step_cycles[next_step:step], axis=0)
            begins[next_step : step + 1] = np.concatenate([begin[np.newaxis], ends])
            begin, next_step = begins[step], step
            if step == len(step_cycles) - 1:
                break
            last = np.max(
                [*carry_out(execution, mixed_cells[step], dict.fromkeys(mixed_cells[step], begin)).values()], axis=0
            )
            last = np.broadcast_to(last.max(axis=0, keepdims=True), last.shape) if run.replicas_meet else last
            begin, next_step = np.maximum(begin + step_cycles[step], last + copies[step]), step + 1
        if execution.record is not None:
            self._note(execution, begins)
        starts = dict.fromkeys(self._shards.tolist(), begins[-1])
        return starts | carry_out(execution, mixed_cells.get(len(step_cycles) - 1, {}), starts)

    def _note(self, execution: Execution, begins: Cycles) -> None:
        """Note the times of passes in plain cells, given the begin of every time-step."""
        assert execution.record is not None
        cycles = execution.passes.table[execution.passes.rows[self._passes]]
        ends = begins[:, np.newaxis, np.newaxis] + np.cumsum(cycles, axis=2)
        is_pass = self._passes >= 0
        execution.record.note(self._passes[is_pass], (ends - cycles)[is_pass], ends[is_pass])
