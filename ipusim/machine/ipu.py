"""Run an IPU's instructions in order, as a process in simulated time, and record passes and waits as spans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from operator import length_hint
from types import GeneratorType
from typing import Any, Final

from ipusim.machine import resources
from ipusim.machine.clock import Moment, Process, Spans
from ipusim.machine.columns import MARK, InstructionColumns
from ipusim.machine.disturbances import PieceOfWork
from ipusim.machine.executor import NullExecutor
from ipusim.machine.facility import Context, Facility, IpuId, Wait
from ipusim.machine.speeds import RealCycles
from ipusim.pipeline.instructions import NONE, PASSES
from ipusim.timeline.kinds import KIND_OF_PASS, SpanKind

#: Kind of span of every pass.
_KINDS: Final[tuple[SpanKind, ...]] = tuple(KIND_OF_PASS)


class Ipu:
    """The process of an IPU, and its progress.

    Attributes:
        id: the IPU.
        execution: the current execution.
    """

    def __init__(
        self,
        context: Context,
        ipu: IpuId,
        columns: InstructionColumns,
        facilities: Iterable[Facility],
        wait_between: Callable[[IpuId, int, int, int], Spans],
    ) -> None:
        """Prepare to carry out ``columns`` in every execution: passes directly, the rest via ``facilities``.

        ``wait_between`` waits before every execution, and after the last. It takes (ipu, execution, step, cause), and
        returns the last span.
        """
        self.id = ipu
        self.execution = 0
        self._context, self._columns, self._wait_between = context, columns, wait_between
        self._facilities = facilities = tuple(facilities)
        #: Handler by code of instruction; passes have none.
        self._handlers = {int(code): handler for facility in facilities for code, handler in facility.handlers.items()}
        self._rest_codes = iter(columns.code)
        #: Number of marks before every instruction, and the total; empty without marks.
        self._marks = [*accumulate((code == MARK for code in columns.code), initial=0)] if MARK in columns.code else []

    @property
    def position(self) -> int:
        """Number of instructions begun across executions so far, apart from marks."""
        instructions, marks = len(self._columns.code), self._marks
        progress = instructions - length_hint(self._rest_codes)
        if not marks:
            return self.execution * instructions + progress
        return self.execution * (instructions - marks[-1]) + progress - marks[progress]

    def run(self) -> Process:
        """Carry out every instruction of every execution; a SimPy process."""
        # These names are bound once, because the loop runs for every instruction of every simulated IPU.
        context, ipu, columns, handlers, kinds = self._context, self.id, self._columns, self._handlers, _KINDS
        clock, record, shard, workers = context.clock, context.recorder.record, ipu.shard, resources.ipus([ipu.number])
        real_cycles = None if clock.steady else clock.real_cycles_of(workers)
        spend: Callable[[resources.Workers, SpanKind, int], Moment] = (
            clock.spend if clock.steady else clock.elapse if real_cycles else self._spend
        )
        executor, steps = context.executor(ipu.replica), context.steps
        compute = None if isinstance(executor, NullExecutor) else executor.run
        cause, cycle = (yield from self._wait_between(ipu, 0, 0, NONE)), clock.now
        for execution in range(context.executions):
            self.execution, first_step = execution, execution * steps
            codes = self._rest_codes = iter(columns.code)
            for code, description, cycles, stage, micro_batch, number, step in zip(
                codes,
                columns.descriptions,
                self._cycles(real_cycles),
                columns.stage,
                columns.micro_batch,
                columns.number,
                columns.step,
                strict=True,
            ):
                if code < PASSES:
                    if compute is not None:
                        compute(shard, code, stage, micro_batch)
                    end = yield spend(workers, kinds[code], cycles)
                    cause = record(description, first_step + step, cycle, end, cause)
                    cycle = end
                    continue
                answer: Any = handlers[code](ipu, stage, micro_batch, number, first_step + step, cause)
                answer_type = type(answer)
                if answer_type is int:
                    cause = answer
                    continue
                if answer_type is tuple:
                    event, wait = answer
                    start, value = cycle, (yield event)
                    cycle = clock.now
                    if cycle > start:  # without a wait, the earlier cause stays
                        record(wait, first_step + step, start, cycle, cause)
                        cause = value
                    continue
                cause = (yield from answer) if answer_type is GeneratorType else (yield answer)
                cycle = clock.now
            cause = yield from self._wait_between(ipu, execution + 1, first_step + steps - 1, cause)
            cycle = clock.now

    def _cycles(self, real_cycles: RealCycles | None) -> Sequence[int]:
        """Return the cycles of an execution's instructions, at full speed without ``real_cycles``."""
        columns = self._columns
        if real_cycles is None:
            return columns.cycles
        rows = [row for row, code in enumerate(columns.code) if code < PASSES]
        keys = [(_KINDS[columns.code[row]], columns.stage[row], columns.micro_batch[row]) for row in rows]
        cycles = list(columns.cycles)
        of_passes = real_cycles(self.execution, keys, [cycles[row] for row in rows])
        for row, cycles_of_pass in zip(rows, of_passes, strict=True):
            cycles[row] = cycles_of_pass
        return cycles

    def _spend(self, workers: resources.Workers, kind: SpanKind, cycles: int) -> Moment:
        """Spend a pass's time under disturbances that depend on stage and micro-batch."""
        columns = self._columns
        row = len(columns.code) - length_hint(self._rest_codes) - 1
        work = PieceOfWork(kind, columns.stage[row], columns.micro_batch[row], self.execution)
        return self._context.clock.spend(workers, work, cycles)

    def waits_for(self) -> Wait:
        """Return the reason why this IPU waits, after the event queue ran empty."""
        waits = (facility.waits_for(self.id.number) for facility in self._facilities)
        return next((wait for wait in waits if wait is not None), Wait("an event of its own"))
