"""Losses of IPUs: the executions that are lost, the pauses of all IPUs, and the moves to spare ones.

A checkpoint is written behind so many weight updates. What was done since the last one, up to the loss, is one span of
lost work; behind it come detection and restart, and the executions since that checkpoint as they are done again, with
feeds as they were there (assumed: the host keeps what it had read). With a spare IPU the run goes on on that one, from
the end of the restart on.
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
    """Whether a system loses an IPU at some time."""
    return any(isinstance(disturbance, Lost) for disturbance in system.disturbances)


def with_pauses(
    job: Job, costs: Costs, system: System, executions: int, between: Mapping[int, Sequence[HostExchange]] | None = None
) -> System:
    """Return a system in which pauses and moves stand for its losses of IPUs, of which there are some.

    Args:
        job: what runs, all micro-batches of it.
        costs: of it.
        system: that it runs on.
        executions: of the pipeline.
        between: what hosts do together before an execution, by its number.
    """
    losses = replacements(system, job.program.shape.mapping)
    others = [disturbance for disturbance in system.disturbances if not isinstance(disturbance, Lost)]
    every, writing = losses[0][0].checkpoint_every, losses[0][0].checkpoint
    saved = [(SpanKind.CHECKPOINT, writing)] if writing else []
    pauses: dict[int, _Spans] = {0: [], **{number: [*saved] for number in range(every, executions, every)}}

    under_way: dict[int, int] = {}

    def paused() -> System:
        stops = (
            Pause(number, tuple(of_pause), under_way.get(number, NONE))
            for number, of_pause in sorted(pauses.items())
            if of_pause
        )
        return replace(system, disturbances=(*others, *stops))

    for loss, spare in losses:
        begins, end = _begins(job, costs, paused(), executions, between)
        if loss.lost >= end:
            continue
        # A checkpoint that is being written is none yet.
        written = {
            number: begins[number] - sum(cycles for _, cycles in of_pause) + (writing if number else 0)
            for number, of_pause in pauses.items()
        }
        last = max(number for number, cycle in written.items() if cycle <= loss.lost)
        pauses[last] = _until(pauses[last], loss.lost - written[last] + (writing if last else 0))
        pauses[last] += [
            (kind, cycles)
            for kind, cycles in (
                (SpanKind.LOST_WORK, loss.lost - max(begins[last], written[last])),
                (SpanKind.DETECTION, loss.detect),
                (SpanKind.RESTART, loss.restart),
            )
            if cycles > 0
        ]
        begun = max(number for number, cycle in begins.items() if number == last or cycle <= loss.lost)
        under_way[last] = max(begun, under_way.get(last, NONE))
        if spare is not None:
            others.append(IpuMove(loss.ipu, spare, loss.lost + loss.detect + loss.restart))
    return paused()


def _until(spans: _Spans, cycles: int) -> _Spans:
    """Return the spans of the first so many cycles, of which the last is cut."""
    first: _Spans = []
    for kind, length in spans:
        if cycles > 0:
            first.append((kind, min(length, cycles)))
        cycles -= length
    return first


def _begins(
    job: Job, costs: Costs, system: System, executions: int, between: Mapping[int, Sequence[HostExchange]] | None
) -> tuple[dict[int, int], int]:
    """Return the cycle in which each execution begins, and that in which the run ends."""
    timeline, marks = marked_run(job, costs, system, executions, (), between=between)
    return {mark.execution: mark.cycle for mark in marks if mark.micro_batch == NONE}, timeline.makespan_cycles
