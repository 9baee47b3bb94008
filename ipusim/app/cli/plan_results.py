"""Define the results of the commands ``check``, ``schedule`` and ``devices``, for the terminal and files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ipusim.api import Job, Machine, Plan, analysis, hardware, pipelines, pricing, schedules
from ipusim.app.cli.figures import cost_tables, machine_tables
from ipusim.app.cli.shape import as_text, schedule_lines
from ipusim.app.cli.tables import expectation_lines, holder_table, holder_words, memory_table
from ipusim.app.render.tables import Table
from ipusim.app.study.result import Preformatted, Result
from ipusim.base.units import counted

if TYPE_CHECKING:
    from ipusim.api import runs
    from ipusim.app.explain.memory_moves import Moves
    from ipusim.app.fidelity.profile import MeasuredPass
    from ipusim.app.regression.expectations import Judgement


@dataclass(frozen=True, eq=False)
class MemoryResult(Result):
    """Memory of a program, with changes that free memory.

    Attributes:
        job: assembled program.
        moves: changes, best first; None if trying changes takes too long.
        is_requested: whether the user asked for each IPU's memory by holder, such as weights or FIFOs.
    """

    job: Job
    moves: Moves | None
    is_requested: bool

    def printout(self) -> Iterator[str | Table]:
        """Yield each IPU's memory by holder, if requested, and possible changes."""
        from ipusim.app.explain.memory_words import move_words, moves_table

        if self.is_requested:
            yield memory_table(self.job.memory)
            yield holder_table(self.job.memory)
            yield from (f"{words}." for words in [holder_words(self.job.memory)] if words)
        if self.moves is None:
            yield (
                "Changes that free memory were not tried, because each needs a full simulation of this run: --memory "
                "tries them."
            )
            return
        yield moves_table(self.moves)
        yield from move_words(self.moves)


@dataclass(frozen=True, eq=False)
class CheckResult(Result):
    """Result of ``check`` for a valid scenario.

    Attributes:
        scenario: path of the scenario file, as given.
        job: assembled program.
        memory: memory by holder and changes that free memory; None if not requested and the program fits.
        measured_passes: measured passes next to their priced cycles.
        costs: whether to print the terms of all costs.
        judgements: expectations that can be judged without a run.
        open_expectations: expectations that need a run.
    """

    scenario: str
    job: Job
    memory: MemoryResult | None
    measured_passes: Sequence[MeasuredPass]
    costs: bool
    judgements: Sequence[Judgement]
    open_expectations: Sequence[runs.Expectation]

    def printout(self) -> Iterator[str | Table]:
        """Yield the program, its fit in memory, requested tables, notes and expectations."""
        from ipusim.app.fidelity.profile import profile_table, words

        job, program = self.job, self.job.program
        period = "weight update" if program.shape.training else "execution"
        periods = f", {job.executions:,} {period}s" if job.executions > 1 else ""
        yield (
            f"{self.scenario}: {counted(len(program.stages), 'stage')}, "
            f"{pipelines.order_and_sync(program.schedule, job.plan.sync)}, "
            f"{counted(program.shape.count, 'micro-batch', 'es')} per {period}{periods}, on {job.system}"
        )
        yield job.memory.verdict()
        if self.memory is not None:
            yield from self.memory.printout()
        if self.measured_passes:
            yield words(self.measured_passes)
            yield profile_table(self.measured_passes)
        if self.costs:
            yield from cost_tables(job.costs, job.plan, program, job.system)
        yield from job.notes  # the command ``run`` prints notes at the end, too
        yield from expectation_lines(self.judgements, self.open_expectations)

    def rows(self) -> list[dict[str, Any]]:
        """Return the terms of all costs if requested; otherwise the peak of each IPU by holder."""
        if self.costs:
            job = self.job
            terms = pricing.terms_of(job.costs, job.plan, job.program, job.system)
            return [{"of": term.label, "term": term.law.name, "cycles": term.cycles} for term in terms]
        return [
            {
                "ipu": peak.ipu,
                "peak_bytes": peak.bytes,
                "sram_bytes": self.job.memory.sram_bytes,
                **{f"{holder.name.lower()}_bytes": size for holder, size in peak.holders},
            }
            for peak in self.job.memory.peaks
        ]

    def data(self) -> dict[str, Any]:
        """Return the program, its fit in memory, the rows, notes and expectations."""
        job, program = self.job, self.job.program
        return {
            "name": job.name,
            "schedule": program.schedule,
            "sync": job.plan.sync,
            "stages": [stage.name for stage in program.stages],
            "executions": job.executions,
            "micro_batches": program.shape.micro_batches,
            "system": str(job.system),
            "fits": job.memory.fits,
            "verdict": job.memory.verdict(),
            "costs" if self.costs else "ipus": self.rows(),
            "moves": None if self.memory is None else analysis.as_plain(self.memory.moves),
            "measured": [{**analysis.as_plain(row), "difference": row.difference} for row in self.measured_passes],
            "notes": list(job.notes),
            "expectations": [judgement.to_dict() for judgement in self.judgements],
            "takes_a_run": [requirement.name for requirement in self.open_expectations],
        }


@dataclass(frozen=True, eq=False)
class ScheduleResult(Result):
    """Planned schedule.

    Attributes:
        plan: plan with all passes.
        form: form of the text, see :func:`ipusim.app.cli.shape.as_text`.
    """

    plan: Plan
    form: str

    def printout(self) -> Iterator[str | Table]:
        """Yield the plan as text."""
        yield Preformatted(as_text(self.plan, self.form))

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each pass in plan order; time-steps are None in point-to-point."""
        names = ("time_step", "ipu", "kind", "stage", "micro_batch")
        columns = (getattr(self.plan, name).tolist() for name in names)
        rows = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
        return [
            {
                **row,
                "time_step": row["time_step"] if self.plan.sync.has_time_steps else None,
                "kind": pipelines.Pass(row["kind"]).name.lower(),
            }
            for row in rows
        ]

    def data(self) -> dict[str, Any]:
        """Return the schedule's shape and passes."""
        shape = self.plan.shape
        return {
            "schedule": self.plan.schedule,
            "sync": self.plan.sync,
            "mapping": list(shape.mapping),
            "count": shape.count,
            "training": shape.training,
            "time_steps": self.plan.emitted if self.plan.sync.has_time_steps else None,
            "passes": self.rows(),
        }


class SchedulesResult(Result):
    """Registered schedules."""

    def printout(self) -> Iterator[str | Table]:
        """Yield lines on each schedule."""
        yield from schedule_lines()

    def rows(self) -> list[dict[str, Any]]:
        """Return every schedule's name, description, sync modes (default first) and supported features."""
        return [
            {
                "schedule": entry.name,
                "summary": entry.summary,
                "sync": list(entry.syncs),
                "supports": [feature for feature in schedules.Feature if feature in entry.supports],
            }
            for entry in map(schedules.find, schedules.names())
        ]


@dataclass(frozen=True, eq=False)
class DevicesResult(Result):
    """Devices of a machine, or figures of its simulation.

    Attributes:
        machine: machine to describe.
        figures: whether to return figures instead of devices.
    """

    machine: Machine
    figures: bool

    def printout(self) -> Iterator[str | Table]:
        """Yield the list of devices in gc-info's format, or tables of figures."""
        if self.figures:
            yield from machine_tables(self.machine)
        else:
            yield Preformatted(hardware.device_listing(self.machine.name))

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each device, or for each figure."""
        if self.figures:
            tables = [table for table in machine_tables(self.machine) if table.header[0] in ("figure", "rate")]
            return [
                {"table": table.title, "name": row[0], **dict(zip(table.header[1:], row[1:], strict=True))}
                for table in tables
                for row in table.rows
            ]
        return [
            {
                "id": device.id,
                "ipus": device.count,
                "pcie_ids": [self.machine.id_at(position) for position in device.positions],
            }
            for device in hardware.devices_of(self.machine)
        ]

    def data(self) -> dict[str, Any]:
        """Return the machine and the rows."""
        return {
            "machine": self.machine.name,
            "description": self.machine.description,
            "figures" if self.figures else "devices": self.rows(),
        }
