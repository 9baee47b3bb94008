"""Compute all times of a run from its Timeline, such as throughput, phases and bubble."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from ipusim.analysis.bubble import Bubble, bubble_of
from ipusim.analysis.executions import executions_of, find_execution
from ipusim.analysis.figures import figure_lines, known_figures
from ipusim.analysis.phases import Phase, execution_phases
from ipusim.analysis.plain import as_plain
from ipusim.analysis.throughput import Throughput, throughput_of
from ipusim.analysis.utilisation import IpuUse, ipu_uses, ratio
from ipusim.base.near_names import did_you_mean
from ipusim.pipeline.plan import Sync, order_and_sync
from ipusim.timeline.timeline import Timeline


@dataclass(frozen=True, repr=False)
class RunTimes:
    """Times of a run, computed from its Timeline. Cycles are integers of the tile clock; seconds are cycles / clock.

    Attributes:
        name: name of the run.
        system: name of the machine.
        schedule: name of the schedule.
        sync: sync mode.
        selection_order: selection order of the IPUs.
        clock_hz: tile clock.
        training: whether the program trains.
        executions: number of times the pipeline is executed.
        stages: names of the stages.
        mapping: logical IPU of each stage, in the first replica.
        ipus: physical IPU of each logical IPU.
        replicas: number of pipeline replicas.
        count: micro-batches of an execution.
        micro_batch_size: samples of a micro-batch.
        overlap: slots of a full time-step.
        time_steps: number of time-steps of one execution; None in point-to-point.
        execution: number of the execution described by makespan, phases, IPUs and bubble.
        makespan_cycles: cycles of that execution's pipeline, without weight update.
        weight_update_cycles: weight update of that execution.
        execution_cycles: pipeline plus weight update of that execution.
        fastest_execution_cycles: cycles of the fastest execution of the run.
        slowest_execution_cycles: cycles of the slowest execution of the run.
        phases: phases of that execution, without gaps.
        pipeline_use: cycles of every IPU in that execution's pipeline, without weight update.
        run_use: cycles of every IPU over the whole run.
        bubble: bubble of that execution, by every definition.
        throughput: rates of the whole run.
    """

    name: str
    system: str
    schedule: str
    sync: Sync
    selection_order: str
    clock_hz: int
    training: bool
    executions: int
    stages: tuple[str, ...]
    mapping: tuple[int, ...]
    ipus: tuple[int, ...]
    replicas: int
    count: int
    micro_batch_size: int
    overlap: int
    time_steps: int | None
    execution: int
    makespan_cycles: int
    weight_update_cycles: int
    execution_cycles: int
    fastest_execution_cycles: int
    slowest_execution_cycles: int
    phases: tuple[Phase, ...]
    pipeline_use: tuple[IpuUse, ...]
    run_use: tuple[IpuUse, ...]
    bubble: Bubble
    throughput: Throughput

    @property
    def order_and_sync(self) -> str:
        """Schedule and sync mode: ``1f1b in point-to-point``."""
        return order_and_sync(self.schedule, self.sync)

    @property
    def period(self) -> str:
        """Name of the throughput's time period: weight update, or execution in inference."""
        return "weight update" if self.training else "execution"

    @property
    def utilisation(self) -> float:
        """Arithmetic / (IPUs x makespan), for IPUs with a stage, in one execution's pipeline."""
        with_stage = [use for use in self.pipeline_use if use.holds_stage]
        return ratio(sum(use.compute_cycles for use in with_stage), len(with_stage) * self.makespan_cycles)

    @property
    def idle_ipus(self) -> tuple[int, ...]:
        """Logical IPUs of the device without a stage."""
        return tuple(use.ipu for use in self.pipeline_use if not use.holds_stage)

    @property
    def hosts(self) -> int:
        """Number of hosts with equal programs, one device per host."""
        return self.throughput.effective_batch_size // (self.micro_batch_size * self.count * self.replicas)

    def seconds(self, cycles: int) -> float:
        """Convert cycles of this run's clock to seconds.

        Args:
            cycles: cycles of the tile clock.

        Returns:
            Seconds.
        """
        return cycles / self.clock_hz

    def __getitem__(self, name: str) -> Any:
        """Return a figure by name.

        Args:
            name: name of a figure, as printed, such as ``time_per_weight_update``.

        Returns:
            Value in the figure's unit, such as seconds, bytes or a share.

        Raises:
            KeyError: for a figure that this run lacks.
        """
        values = known_figures(self._data())
        if name not in values:
            raise KeyError(f"expected a figure of this run, got {name!r}{did_you_mean(name, list(values))}")
        return values[name]

    def __repr__(self) -> str:
        """Return a line per known figure; ``to_dict()`` of a Summary has all numbers."""
        heading = f"{type(self).__name__} of {self.name}: {self.order_and_sync} on {self.system}"
        return "\n".join([heading, *figure_lines(self._data())])

    def _data(self) -> dict[str, Any]:
        return self.times_dict()

    def times_dict(self) -> dict[str, Any]:
        """Return cycles and seconds as plain data for JSON, in fixed order."""
        data = {field.name: as_plain(getattr(self, field.name)) for field in fields(RunTimes)}
        data["phases"] = [
            {**as_plain(phase), "cycles": phase.cycles, "seconds": self.seconds(phase.cycles)} for phase in self.phases
        ]
        data["pipeline_use"] = [self._use(use, self.makespan_cycles) for use in self.pipeline_use]
        data["run_use"] = [self._use(use, self.throughput.run_cycles) for use in self.run_use]
        result: dict[str, Any] = {}
        for key, value in data.items():
            result[key] = value
            if key.endswith("_cycles"):
                result[key.removesuffix("_cycles") + "_s"] = self.seconds(value)
        result["utilisation"] = self.utilisation
        result["idle_ipus"] = list(self.idle_ipus)
        result["throughput"]["run_s"] = self.seconds(self.throughput.run_cycles)
        return result

    def _use(self, use: IpuUse, window_cycles: int) -> dict[str, Any]:
        data: dict[str, Any] = {"ipu": use.ipu, "physical_ipu": use.physical_ipu, "stages": list(use.stages)}
        data |= {f"{name}_cycles": cycles for name, cycles in use.cycles.items()}
        data["compute_cycles"] = use.compute_cycles
        data["utilisation"] = ratio(use.compute_cycles, window_cycles)
        return data


def run_times_of(timeline: Timeline, execution: int = 0) -> RunTimes:
    """Return the times of a run, with makespan, phases and bubble of one execution.

    Raises TimelineError if the Timeline lacks the execution.
    """
    info, window = timeline.info, find_execution(timeline, execution)
    cycles = [entry.execution_cycles for entry in executions_of(timeline)]
    time_steps = info.time_steps if info.has_time_steps else None
    # Other fields have equal names and values in the Timeline's info.
    info_fields = vars(info) | {"count": info.micro_batches, "time_steps": time_steps}
    return RunTimes(
        **{field.name: info_fields[field.name] for field in fields(RunTimes) if field.name in info_fields},
        execution=execution,
        makespan_cycles=window.makespan_cycles,
        weight_update_cycles=window.update_cycles,
        execution_cycles=window.execution_cycles,
        fastest_execution_cycles=min(cycles),
        slowest_execution_cycles=max(cycles),
        phases=execution_phases(timeline, execution),
        pipeline_use=ipu_uses(timeline, window),
        run_use=ipu_uses(timeline),
        bubble=bubble_of(timeline, window),
        throughput=throughput_of(timeline),
    )
