"""Compute the throughput of a run in samples, over all executions and weight updates."""

from __future__ import annotations

from dataclasses import dataclass

from ipusim.analysis.executions import BETWEEN_KINDS, executions_of
from ipusim.base.units import throughput_text
from ipusim.timeline.info import TimelineInfo
from ipusim.timeline.timeline import Timeline


@dataclass(frozen=True)
class Throughput:
    """Rates of a run.

    A run consists of its executions, and of host work, checkpoints and restarts before, between and after executions.

    Attributes:
        effective_batch_size: samples per weight update: micro-batch size x gradient
            accumulation count x replicas x hosts.
        samples: samples consumed during the run by all hosts and replicas.
        run_cycles: length of the run.
        samples_per_s: mean rate of samples; 0 for a run of zero cycles.
        micro_batches_per_s: mean rate of micro-batches; 0 for a run of zero cycles.
        weight_update_period_s: mean seconds from one weight update to the next
            (inference: from one execution to the next).
    """

    effective_batch_size: int
    samples: int
    run_cycles: int
    samples_per_s: float
    micro_batches_per_s: float
    weight_update_period_s: float

    @property
    def words(self) -> str:
        """The mean rate of samples for people."""
        return throughput_text(self.samples_per_s)


def throughput_of(timeline: Timeline) -> Throughput:
    """Return the rates of a run; for an empty Timeline everything but the effective batch size is 0."""
    info, executions = timeline.info, executions_of(timeline)
    timeline = timeline.with_block_ends_expanded()  # so that the run's last span is a row, even in a part that repeats
    rows_between, cycles = timeline.rows(*BETWEEN_KINDS), 0
    if executions:
        begin = int(timeline.start[rows_between].min(initial=executions[0].start))
        cycles = int(timeline.end[rows_between].max(initial=executions[-1].end)) - begin
    return rates_of(info, cycles, sum(execution.times for execution in executions))


def rates_of(info: TimelineInfo, cycles: int, executions: int) -> Throughput:
    """Return the rates of a run from its length; samples and rates are 0 without executions.

    Args:
        info: info of the Timeline.
        cycles: length of the run.
        executions: number of pipeline executions.
    """
    micro_batches_of_execution = info.micro_batches * info.replicas * info.hosts
    micro_batches = micro_batches_of_execution * executions
    rate = micro_batches * info.clock_hz / cycles if cycles else 0.0
    return Throughput(
        effective_batch_size=info.micro_batch_size * micro_batches_of_execution,
        samples=micro_batches * info.micro_batch_size,
        run_cycles=cycles,
        samples_per_s=rate * info.micro_batch_size,
        micro_batches_per_s=rate,
        weight_update_period_s=cycles / executions / info.clock_hz if executions else 0.0,
    )
