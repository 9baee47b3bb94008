"""Define the outcome of a sweep's point: figures of the run, or the reason for a missing run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from ipusim.api import (
    Job,
    Problem,
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
from ipusim.app.study.figures import TIME_MEASURES, is_value, outcome_figures
from ipusim.base.errors import FileError, IpusimError


@dataclass(frozen=True)
class Outcome:
    """Figures of a run by name, or the reason why the point did not run.

    Columns of a sweep's files are attributes too, such as ``samples_per_s``, ``bubble`` and ``peak_bytes``. The value
    of a missing figure is None.

    Attributes:
        message: reason why the point did not run; empty after a run.
        figures: values by names of :data:`ipusim.analysis.figures.FIGURES`; a program that is refused for its memory
            has only the figures of its fullest IPU.
        sync: sync mode; empty if the point did not run.
        sram_bytes: memory of an IPU in bytes; None if unlimited.
        makespan_cycles: cycles of the pipeline's first execution, without weight update.
        run_cycles: cycles of the whole run.
        is_refusal: whether rules refused the point, so that equal options with the same code are refused again.
    """

    message: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)
    sync: str = ""
    sram_bytes: int | None = None
    makespan_cycles: int | None = None
    run_cycles: int = 0
    is_refusal: bool = False

    @property
    def has_run(self) -> bool:
        """Whether the point ran, even if it exceeds memory."""
        return not self.message

    @property
    def fits(self) -> analysis.Fits | None:
        """Whether the program fits in memory; None after a rule's refusal."""
        return self.figures.get("memory")

    @property
    def is_complete(self) -> bool:
        """Whether every measure of time is known; a run without time has no throughput."""
        return self.figures.keys() >= (TIME_MEASURES if self.run_cycles else TIME_MEASURES - {"throughput"})

    def value(self, figure: analysis.Figure) -> float | None:
        """Return the value of a figure; None if missing."""
        return self.figures.get(figure.name)

    def __getattr__(self, name: str) -> Any:
        """Return the figure of a sweep's column; None if missing."""
        if name not in _BY_COLUMN:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self.figures.get(_BY_COLUMN[name])


#: Figures of an outcome by name: measures of a sweep, and whether the program fits.
_KEPT_FIGURES: Final = {figure.name: figure for figure in analysis.FIGURES if figure.measure or figure.unit == "fits"}
#: Names of figures by their columns in a sweep's files.
_BY_COLUMN: Final = {figure.column: figure.name for figure in analysis.FIGURES if figure.measure}
#: Upper bound of stored cycles.
_MOST_CYCLES: Final = 2**63
#: Outcome without any figure.
_EMPTY: Final = Outcome()


def stored_outcome(data: Any) -> Outcome:
    """Return an outcome of a successful run, or of a refusal, from JSON; raises FileError for malformed data."""
    if not isinstance(data, dict) or data.keys() != asdict(_EMPTY).keys():
        raise FileError("expected the fields of an outcome")
    figures, is_refusal = data["figures"], data["is_refusal"]
    required = set() if is_refusal else {"memory"}
    if not isinstance(figures, dict) or not required <= figures.keys() <= _KEPT_FIGURES.keys():
        raise FileError("expected the figures of an outcome")
    wrong = [name for name, value in data.items() if not _is_stored(name, value, is_refusal=is_refusal)]
    if wrong := wrong + [name for name, value in figures.items() if not is_value(_KEPT_FIGURES[name], value)]:
        raise FileError(f"expected values of an outcome, got other values of {', '.join(wrong)}")
    fits = {name: analysis.Fits(value) for name, value in figures.items() if name == "memory"}
    return Outcome(**{**data, "figures": {**figures, **fits}})


def _is_stored(name: str, value: Any, *, is_refusal: Any) -> bool:
    """Return whether a field of a successful outcome, or of a refusal, may hold this value."""
    match name:
        case "figures":
            return True  # checked one by one
        case "is_refusal":
            return type(value) is bool
        case "message":
            return isinstance(value, str) and bool(value) == is_refusal
        case "sync" | "makespan_cycles" | "run_cycles" if is_refusal:
            return bool(value == getattr(_EMPTY, name))
        case "sync":
            return value in [sync.value for sync in Sync]
    return (value is None and name == "sram_bytes") or (type(value) is int and 0 <= value < _MOST_CYCLES)


def outcome_of(request: Request, changes: Mapping[str, Any]) -> Outcome:
    """Return the outcome of ``request`` with ``changes``; errors become its message.

    Results shared with earlier points come from the shared cache.
    """
    try:
        return _run(assemble(request.replace(changes)))
    except RequestMemoryError as error:
        memory = error.job.memory
        figures = _kept_figures({"memory": memory.summary})
        return Outcome(_one_line(error), figures, sram_bytes=memory.sram_bytes, is_refusal=True)
    except RequestError as error:
        return Outcome(_one_line(error), is_refusal=not any(map(_may_pass_later, error.problems)))
    except MemoryError as error:
        return Outcome(message=f"too little memory: {error}")
    except Exception as error:  # user functions may raise anything
        return Outcome(message=_one_line(error))


def _may_pass_later(problem: Problem) -> bool:
    """Return whether a problem stems from data or from an error of a user's code, which may import other files."""
    return problem.path[:1] == ("data",) or (problem.error is not None and problem.error.__cause__ is not None)


def _one_line(error: Exception) -> str:
    """Return an error in one line."""
    if isinstance(error, RequestError):
        return "; ".join(map(str, error.problems))
    text = str(error) if isinstance(error, IpusimError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())


def _run(job: Job) -> Outcome:
    """Run a Job; cycles of a timing-only run give all figures, unless a measure needs the whole summary."""
    if job.workload is None:
        outcome = outcome_of_run(job, Session(job).run(job.executions))
        if outcome.is_complete:
            return outcome
    run = execute(job)
    outcome = outcome_of_run(job, run.timeline, analysis.as_plain(run.summary.learning))
    if outcome.is_complete:
        return outcome
    return replace(outcome, figures=_kept_figures({**run.summary.to_dict(), "memory": job.memory.summary}))


def outcome_of_run(job: Job, timeline: Timeline, learning: Mapping[str, Any] | None = None) -> Outcome:
    """Return the outcome of a run from its Timeline, losses and accuracies."""
    first, rates = analysis.find_execution(timeline, 0), analysis.throughput_of(timeline)
    idle_cycles = analysis.bubble_of(timeline, first).idle_cycles
    compute = len(timeline.info.stages_of_ipu) * first.makespan_cycles - idle_cycles
    cycles = runs.RunCycles(rates.run_cycles, first.makespan_cycles, compute)
    return outcome_of_cycles(job, timeline.info, cycles, learning)


def outcome_of_cycles(
    job: Job, info: timelines.TimelineInfo, cycles: runs.RunCycles, learning: Mapping[str, Any] | None = None
) -> Outcome:
    """Return the outcome of a run from its cycles.

    Args:
        job: Job of the run.
        info: info of its Timeline.
        cycles: cycles of the run.
        learning: losses and accuracies of its summary; None if arithmetic did not run.
    """
    rates = analysis.rates_of(info, cycles.run, info.executions)
    available = len(info.stages_of_ipu) * cycles.makespan
    figures = _kept_figures(
        {
            "makespan_s": cycles.makespan / info.clock_hz,
            "throughput": analysis.as_plain(rates),
            "bubble": {"idle_fraction": analysis.ratio(available - cycles.compute, available)},
            "utilisation": analysis.ratio(cycles.compute, available),
            "memory": job.memory.summary,
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
    )


def _kept_figures(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of sweeps from parts of ``summary.json``."""
    return {name: value for name, value in outcome_figures(summary).items() if name in _KEPT_FIGURES}
