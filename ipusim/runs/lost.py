"""Add the consequences of lost IPUs to a System: lost executions, pauses of all IPUs, moves to spare IPUs.

A checkpoint follows every fixed number of weight updates. The work between the last checkpoint and a loss is one span
of lost work. Detection and restart follow, then the executions since the checkpoint run again with the same feeds
(assumed: the host keeps the elements read). With a spare IPU, the run continues on the spare after the restart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ipusim.hardware.disturbances import Lost
from ipusim.hardware.system import System
from ipusim.machine.run_changes import IpuMove, Pause, replacements
from ipusim.pipeline.instructions import NONE
from ipusim.pricing.costs import Costs
from ipusim.pricing.exchanges import HostExchange
from ipusim.runs.job import Job
from ipusim.runs.marked import marked_run
from ipusim.timeline.kinds import SpanKind

_Spans = list[tuple[SpanKind, int]]


def loses(system: System) -> bool:
    """Return whether a system loses an IPU at any time."""
    return any(isinstance(disturbance, Lost) for disturbance in system.disturbances)


def with_pauses(
    job: Job, costs: Costs, system: System, executions: int, between: Mapping[int, Sequence[HostExchange]] | None = None
) -> System:
    """Return a system with pauses and moves in place of its losses of IPUs (at least one).

    Args:
        job: Job of the run, with all micro-batches laid out.
        costs: costs of the Job.
        system: system of the Job.
        executions: number of pipeline executions.
        between: host exchanges before an execution, by number of the execution.
    """
    losses = replacements(system, job.program.shape.mapping)
    disturbances = [disturbance for disturbance in system.disturbances if not isinstance(disturbance, Lost)]
    interval, writing_cycles = losses[0][0].checkpoint_every, losses[0][0].checkpoint
    checkpoint = [(SpanKind.CHECKPOINT, writing_cycles)] if writing_cycles else []
    pauses: dict[int, _Spans] = {0: [], **{number: [*checkpoint] for number in range(interval, executions, interval)}}

    # execution in which the IPU was lost, by the execution before which the pause is recorded
    under_way: dict[int, int] = {}

    def system_with_pauses() -> System:
        """Return the system with all pauses found so far."""
        stops = (
            Pause(number, tuple(pause_spans), under_way.get(number, NONE))
            for number, pause_spans in sorted(pauses.items())
            if pause_spans
        )
        return replace(system, disturbances=(*disturbances, *stops))

    for loss, spare in losses:
        starts, end = _execution_starts(job, costs, system_with_pauses(), executions, between)
        if loss.lost >= end:
            continue
        # Work is saved up to the last finished checkpoint: a loss during the writing makes a checkpoint useless.
        write_ends = {
            number: starts[number] - sum(cycles for _, cycles in pause_spans) + (writing_cycles if number else 0)
            for number, pause_spans in pauses.items()
        }
        last_saved = max(number for number, cycle in write_ends.items() if cycle <= loss.lost)
        pauses[last_saved] = _cut(
            pauses[last_saved], loss.lost - write_ends[last_saved] + (writing_cycles if last_saved else 0)
        )
        pauses[last_saved] += [
            (kind, cycles)
            for kind, cycles in (
                (SpanKind.LOST_WORK, loss.lost - max(starts[last_saved], write_ends[last_saved])),
                (SpanKind.DETECTION, loss.detect),
                (SpanKind.RESTART, loss.restart),
            )
            if cycles > 0
        ]
        last_started = max(number for number, cycle in starts.items() if number == last_saved or cycle <= loss.lost)
        under_way[last_saved] = max(last_started, under_way.get(last_saved, NONE))
        if spare is not None:
            disturbances.append(IpuMove(loss.ipu, spare, loss.lost + loss.detect + loss.restart))
    return system_with_pauses()


def _cut(spans: _Spans, cycles: int) -> _Spans:
    """Return the spans of the first ``cycles`` cycles; the span at the end is shortened."""
    kept_spans: _Spans = []
    for kind, length in spans:
        if cycles > 0:
            kept_spans.append((kind, min(length, cycles)))
        cycles -= length
    return kept_spans


def _execution_starts(
    job: Job, costs: Costs, system: System, executions: int, between: Mapping[int, Sequence[HostExchange]] | None
) -> tuple[dict[int, int], int]:
    """Return the cycle at which each execution starts, and the cycle at which the run ends."""
    timeline, marks = marked_run(job, costs, system, executions, (), between=between)
    return {mark.execution: mark.cycle for mark in marks if mark.micro_batch == NONE}, timeline.makespan_cycles
