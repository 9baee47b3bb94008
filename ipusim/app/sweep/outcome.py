"""The outcome of one point of a sweep: its numbers, or why there are none."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Any, Final, get_type_hints

from ipusim.api import (
    Job,
    Request,
    RequestError,
    RequestMemoryError,
    Session,
    Sync,
    Timeline,
    analysis,
    assemble,
    execute,
    runs,
    timelines,
)
from ipusim.base.errors import FileError, IpusimError


@dataclass(frozen=True)
class Outcome:
    """The figures of a run, by their names in the table, or the reason why there are none.

    The columns of a sweep's files are attributes too: ``samples_per_s``, ``bubble``, ``peak_bytes`` and so on, None
    without such a figure.

    Attributes:
        message: why it did not run; empty where it did.
        figures: values by names of :data:`ipusim.analysis.figures.FIGURES`; also the fullest IPU of a refused program.
        sync: how IPUs wait for each other; empty where it did not run.
        sram_bytes: memory of an IPU, where it is limited.
        makespan_cycles: of the first execution of the pipeline, without its weight update.
        run_cycles, executions: length of the whole run, and how often the pipeline was executed in it.
        samples: behind one weight update.
        clock_hz: of the tiles.
        ipus: that hold a stage.
        busiest_cycles, compute_cycles: arithmetic of the busiest IPU, and of all IPUs, in the first execution.
    """

    message: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)
    sync: str = ""
    sram_bytes: int | None = None
    makespan_cycles: int | None = None
    run_cycles: int = 0
    executions: int = 0
    samples: int = 0
    clock_hz: int = 0
    ipus: int = 0
    busiest_cycles: int = 0
    compute_cycles: int = 0

    @property
    def ran(self) -> bool:
        """Whether it ran, fitting or not."""
        return not self.message

    @property
    def fits(self) -> analysis.Fits | None:
        """The answer to whether the program fits its memory; None where a rule refuses it."""
        return self.figures.get("memory")

    def value(self, figure: analysis.Figure) -> float | None:
        """Return the number of a figure; None without it."""
        return self.figures.get(figure.name)

    def __getattr__(self, name: str) -> Any:
        """Return the figure of a column of sweeps; None without it."""
        if name not in _BY_COLUMN:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self.figures.get(_BY_COLUMN[name])


#: The figures of an outcome by name: all figures of sweeps, and the answer to whether the program fits.
_KEPT: Final = {each.name: each for each in analysis.FIGURES if each.measure or each.unit == "fits"}
_BY_COLUMN: Final = {each.column: each.name for each in analysis.FIGURES if each.measure}
_MOST_CYCLES: Final = 2**63


def stored_outcome(data: Any) -> Outcome:
    """Return an outcome that ran from JSON, its fields by their names; raises FileError for what is none."""
    kinds = get_type_hints(Outcome)
    if not isinstance(data, dict) or data.keys() != kinds.keys():
        raise FileError("expected the fields of an outcome")
    figures = data["figures"]
    if not isinstance(figures, dict) or not {"memory"} <= figures.keys() <= _KEPT.keys():
        raise FileError("expected the figures of an outcome")
    wrong = [name for name, value in data.items() if name != "figures" and not _is_stored(name, kinds[name], value)]
    if wrong := wrong + [name for name, value in figures.items() if not _is_figure(_KEPT[name].unit, value)]:
        raise FileError(f"expected values that a run has, got others of {', '.join(wrong)}")
    return Outcome(**{**data, "figures": {**figures, "memory": analysis.Fits(figures["memory"])}})


def _is_stored(name: str, kind: Any, value: Any) -> bool:
    """Return whether a value is one that a field of an outcome that ran may have."""
    if kind is str:
        return value in ([""] if name == "message" else [sync.value for sync in Sync])
    if value is None:
        return name == "sram_bytes"
    # A run without executions, IPUs or a clock is none; one without time or arithmetic may be.
    least = 1 if name in ("executions", "ipus", "clock_hz", "samples") else 0
    return type(value) is int and least <= value < _MOST_CYCLES


def _is_figure(unit: str, value: Any) -> bool:
    """Return whether a value is one that a figure of a unit may have."""
    if unit == "fits":
        return value in tuple(analysis.Fits)
    if unit == "bytes":
        return type(value) is int and 0 <= value < _MOST_CYCLES
    if type(value) not in (int, float):
        return False
    return unit == "number" or 0 <= value <= (1 if unit == "share" else sys.float_info.max)


def outcome_of(request: Request, changes: Mapping[str, Any]) -> Outcome:
    """Return the outcome of ``request`` with these ``changes``; any error becomes its message, and is not raised.

    What an earlier one has in common with it is taken from the shared cache.
    """
    try:
        return _run(assemble(request.replace(changes)))
    except RequestMemoryError as error:
        memory = error.job.memory
        figures = _kept({"memory": {"fits": memory.fits, "ipus": [{"peak_bytes": memory.fullest.bytes}]}})
        return Outcome(_one_line(error), figures, sram_bytes=memory.sram_bytes)
    except MemoryError as error:
        return Outcome(message=f"this takes more memory than there is: {error}")
    except Exception as error:  # functions of a user's own may raise anything
        return Outcome(message=_one_line(error))


def _one_line(error: Exception) -> str:
    """Return an error in one line."""
    if isinstance(error, RequestError):
        return "; ".join(map(str, error.problems))
    text = str(error) if isinstance(error, IpusimError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())


def _run(job: Job) -> Outcome:
    """Run a Job; without arithmetic no more is worked out of it than an Outcome has."""
    if job.workload is None:
        return outcome_of_run(job, Session(job).run(job.executions))
    run = execute(job)
    return outcome_of_run(job, run.timeline, analysis.as_plain(run.summary.learning))


def outcome_of_run(job: Job, timeline: Timeline, learning: Mapping[str, Any] | None = None) -> Outcome:
    """Return the outcome of a run from its Timeline and the losses and accuracies of its summary."""
    first, rates = analysis.find_execution(timeline, 0), analysis.throughput_of(timeline)
    idle = analysis.bubble_of(timeline, first)
    compute = len(timeline.info.stages_of_ipu) * first.makespan_cycles - idle.idle_cycles
    cycles = runs.RunCycles(rates.run_cycles, first.makespan_cycles, idle.ideal_cycles, compute)
    return outcome_of_cycles(job, timeline.info, cycles, learning)


def outcome_of_cycles(
    job: Job, info: timelines.TimelineInfo, cycles: runs.RunCycles, learning: Mapping[str, Any] | None = None
) -> Outcome:
    """Return the outcome of a run from its cycles.

    Args:
        job: what ran.
        info: of its Timeline.
        cycles: of the run.
        learning: losses and accuracies of its summary; None for a run without arithmetic.
    """
    rates = analysis.rates_of(info, cycles.run, info.executions)
    holders = len(info.stages_of_ipu)
    available = holders * cycles.makespan
    fullest = [{"peak_bytes": job.memory.fullest.bytes}] if job.describes_memory else []
    figures = _kept(
        {
            "makespan_s": cycles.makespan / info.clock_hz,
            "throughput": analysis.as_plain(rates),
            "bubble": {"idle_fraction": analysis.ratio(available - cycles.compute, available)},
            "utilisation": analysis.ratio(cycles.compute, available),
            "memory": {"fits": job.memory.fits, "ipus": fullest},
            "learning": learning,
        }
    )
    return Outcome(
        "",
        figures,
        sync=job.plan.sync.value,
        sram_bytes=job.memory.sram_bytes,
        makespan_cycles=cycles.makespan,
        run_cycles=cycles.run,
        executions=info.executions,
        samples=rates.effective_batch_size,
        clock_hz=info.clock_hz,
        ipus=holders,
        busiest_cycles=cycles.busiest,
        compute_cycles=cycles.compute,
    )


def _kept(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of an outcome out of a part of ``summary.json``; a loss that is not finite is left out."""
    known = analysis.known_figures(summary)
    numbers = {name for name, each in _KEPT.items() if each.unit != "number" or not isnan(known.get(name, nan))}
    return {name: value for name, value in known.items() if name in numbers}
