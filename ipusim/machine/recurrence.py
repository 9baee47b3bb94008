"""Detect that a run repeats itself, from complete states of the machine at marks (noted moments).

A simulation skips the repeated spans: a jump. Three facts make it exact. The machine is deterministic. A state holds
everything that determines the future, with times relative to now and micro-batches relative to the mark. From two marks
with equal states on, every IPU has equal instructions, apart from a shift of micro-batches by the schedule's period. So
the spans between the two marks happen again after the second mark, as long as the instructions repeat.

A step is a session run of several executions. Rules that depend on the number of an execution extend the state by the
execution's place in its step, if they repeat per step (:func:`executions_in_a_row`). Rules without a period, such as
jitter and exchanges between hosts before some steps, forbid the jump (``ipusim/runs/time_alone.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import simpy

from ipusim.machine.clock import Clock
from ipusim.pipeline.instructions import NONE, PASSES, Code
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing.costs import Costs


class Mark(NamedTuple):
    """The state of a run at a moment.

    Attributes:
        execution: current execution of the first stage's IPU.
        micro_batch: micro-batch of the pass about to begin; NONE at the beginning of an execution.
        phase: kind and stage of the pass about to begin.
        cycle: cycle of the mark.
        positions: next instruction per IPU, counted across executions.
        state: the rest of the state, relative to now and to the micro-batch. If any rule depends on the execution's
            place in its step, this place is included.
    """

    execution: int
    micro_batch: int
    phase: tuple[int, int]
    cycle: int
    positions: tuple[int, ...]
    state: Hashable


#: Callbacks of changing disturbances on tensors in flight. States omit these callbacks, because a jump over repeats
#: lands before the disturbance's change, after the arrival of tensors from skipped repeats.
_DISTURBANCE_CALLBACKS: Final = frozenset({"Links._share_again", "Delivery._reroute", "ActivationMoves._reroute"})


def queue_state(clock: Clock, processes: Sequence[simpy.Process]) -> Hashable:
    """Return the scheduled events in order: cycles from now, and callbacks.

    Args:
        clock: the time of the machine.
        processes: the processes of the IPUs.
    """
    numbers = {process: number for number, process in enumerate(processes)}
    return tuple(
        (time - clock.now, priority, *names)
        for time, priority, _, event in sorted(clock._queue, key=lambda entry: entry[:3])
        if _DISTURBANCE_CALLBACKS.isdisjoint(names := [_name(callback, numbers) for callback in event.callbacks or ()])
    )


def executions_in_a_row(program: PipelineProgram, costs: Costs, executions: int) -> int:
    """Return the number of executions after which a run may repeat itself.

    Args:
        program: program of the run.
        costs: costs of the Plan.
        executions: pipeline executions in the whole run.

    Returns:
        The number of executions in a step, if the run has several steps and a rule depends on an execution's place in
        its step: the host takes time after every step, or results leave only at the end of a step. Otherwise 1.

    Example:
        >>> from ipusim.api import Request, assemble
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> pipeline = {"gradient_accumulation_count": 4, "repeat_count": 10, "stages": stages}
        >>> outfeed = {"element_bytes": 1000, "mode": "LAST"}
        >>> job = assemble(Request.from_dict({"system": {"name": "m2000"}, "pipeline": pipeline, "outfeed": outfeed}))
        >>> executions_in_a_row(job.program, job.costs, 70), executions_in_a_row(job.program, job.costs, 10)
        (10, 1)
    """
    host, step = costs.host, program.repeat_count
    results_by_step = bool(host.outfeed or host.drain) and program.outfeed_elements.period > 1
    return step if executions > step and (host.call or results_by_step) else 1


def size_of(state: Hashable) -> int:
    """Return a state's number of values."""
    return sum(map(size_of, state)) if isinstance(state, tuple) else 1


def _name(callback: Callable[[simpy.Event], Any], numbers: dict[simpy.Process, int]) -> str:
    """Return a callback's name: an IPU's number, or a function's name."""
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, simpy.Process):
        generator = owner._generator
        return f"{numbers.get(owner, '')} {getattr(generator, '__qualname__', '')}"
    function = getattr(callback, "func", callback)
    return str(getattr(function, "__qualname__", ""))


def periods(marks: Sequence[Mark], recur: Callable[[Mark, Mark], bool]) -> Iterator[tuple[Mark, Mark]]:
    """Yield pairs of marks around a period of the run, late pairs first.

    Among pairs with the same third mark, short periods come first.

    A pair has equal states, and a third mark with the same state follows at the same distance.

    Args:
        marks: equidistant marks in order of time.
        recur: function that tells whether the IPUs' instructions between two marks repeat, shifted, after the second.
    """
    numbers_of: dict[Hashable, list[int]] = {}
    for number, mark in enumerate(marks):
        numbers_of.setdefault(mark.state, []).append(number)
    for last in range(len(marks) - 1, 1, -1):
        earlier = [number for number in numbers_of[marks[last].state] if number < last]
        for middle in reversed(earlier):
            first = 2 * middle - last
            if first < 0:
                break
            begin_mark, middle_mark, end_mark = marks[first], marks[middle], marks[last]
            if (
                begin_mark.state == end_mark.state
                and _have_equal_counts(begin_mark, middle_mark, end_mark)
                and recur(begin_mark, middle_mark)
            ):
                yield begin_mark, middle_mark


def _have_equal_counts(start: Mark, middle_mark: Mark, end_mark: Mark) -> bool:
    """Whether every IPU carries out equally many instructions from mark to mark."""
    return all(
        b - a == c - b for a, b, c in zip(start.positions, middle_mark.positions, end_mark.positions, strict=True)
    )


class InstructionLists:
    """The IPUs' instructions of an execution, searched for repeats."""

    def __init__(self, plan: Plan, replicas: int) -> None:
        """Take a Plan's instructions."""
        instructions = plan.instructions
        ipus, starts = np.unique(instructions[:, 0], return_index=True)
        lists = np.split(instructions[:, 1:], starts[1:])
        self._lists = lists * replicas
        repeats = plan.order.repeats
        bounds = [
            (0, len(rows)) if repeats is None else _bounds(rows, *repeats[ipu])
            for ipu, rows in zip(ipus, lists, strict=True)
        ]
        self._bounds = bounds * replicas

    def recur(self, first: Mark, second: Mark) -> bool:
        """Whether every IPU's instructions between two marks repeat, shifted by micro-batches, after the second."""
        if second.execution > first.execution:  # whole executions have equal instructions, so counts decide
            executions = second.execution - first.execution
            ranges = zip(first.positions, second.positions, self._lists, strict=True)
            return all(b - a == executions * len(rows) for a, b, rows in ranges)
        shift = second.micro_batch - first.micro_batch
        for a, b, rows, (least, most) in zip(first.positions, second.positions, self._lists, self._bounds, strict=True):
            begin, end = a % len(rows), b % len(rows)
            stop = 2 * end - begin
            if a // len(rows) != b // len(rows) or begin < least or stop > most:
                return False
            if begin == end:  # a faster replica is past its last micro-batch, with nothing to compare
                return False
            if not _repeats(rows[begin:end], rows[end:stop], shift):
                return False
        return True


def _bounds(rows: npt.NDArray[np.int64], first: int, last: int) -> tuple[int, int]:
    """Return the index after pass ``first - 1``, and the index of pass ``last``."""
    passes = np.flatnonzero(rows[:, 0] < PASSES)
    return int(passes[first - 1]) + 1 if first else 0, int(passes[last]) if last < len(passes) else len(rows)


def _repeats(rows: npt.NDArray[np.int64], later_rows: npt.NDArray[np.int64], shift: int) -> bool:
    """Whether instructions are equal, shifted by ``shift`` micro-batches."""
    code, stage, micro_batch, number = rows.T
    shifted_batch = np.where(micro_batch == NONE, NONE, micro_batch + shift)
    numbers = np.where((code == Code.BEGIN_IO) & (number != NONE), number + shift, number)
    return bool(np.array_equal(np.stack([code, stage, shifted_batch, numbers], axis=1), later_rows))
