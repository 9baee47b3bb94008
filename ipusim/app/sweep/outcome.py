"""The outcome of one point of a sweep: its numbers, or why there are none."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
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
)
from ipusim.base.errors import FileError, IpusimError


@dataclass(frozen=True)
class Outcome:
    """The numbers of a run; None where it did not run, or does not say.

    Attributes:
        message: why it did not run; empty where it did.
        sync: how IPUs wait for each other; empty where it did not run.
        fits: the answer to whether the program fits its memory; None where a rule refuses it.
        peak_bytes: what the fullest IPU holds, where the request says what stages hold.
        sram_bytes: memory of an IPU, where it is limited.
        makespan_cycles, makespan_s: of the first execution of the pipeline, without its weight update.
        weight_update_period_s: mean time from one weight update to the next, of inference from execution to execution.
        samples_per_s: mean throughput of the whole run.
        bubble: idle / (IPUs x makespan).
        utilisation: arithmetic / (IPUs x makespan).
        loss: mean of the last step's losses, where there is arithmetic.
        accuracy: on the held-out samples at last, where there are any.
        run_cycles, executions: length of the whole run, and how often the pipeline was executed in it.
        samples: behind one weight update.
        clock_hz: of the tiles.
        ipus: that hold a stage.
        busiest_cycles, compute_cycles: arithmetic of the busiest IPU, and of all IPUs, in the first execution.
    """

    message: str = ""
    sync: str = ""
    fits: analysis.Fits | None = None
    peak_bytes: int | None = None
    sram_bytes: int | None = None
    makespan_cycles: int | None = None
    makespan_s: float | None = None
    weight_update_period_s: float | None = None
    samples_per_s: float | None = None
    bubble: float | None = None
    utilisation: float | None = None
    loss: float | None = None
    accuracy: float | None = None
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


#: What of an outcome that ran is a share, and what may be any number, or none that is finite.
_SHARES: Final = ("bubble", "utilisation", "accuracy")
_ANY_NUMBER: Final = ("loss",)
#: What is not there for every request.
_MAY_LACK: Final = ("peak_bytes", "sram_bytes", "loss", "accuracy")
_MOST_CYCLES: Final = 2**63


def stored_outcome(data: Any) -> Outcome:
    """Return an outcome that ran from JSON, its fields by their names; raises FileError for what is none."""
    kinds = get_type_hints(Outcome)
    if not isinstance(data, dict) or data.keys() != kinds.keys():
        raise FileError("expected the fields of an outcome")
    if wrong := [name for name, value in data.items() if not _is_stored(name, kinds[name], value)]:
        raise FileError(f"expected values that a run has, got others of {', '.join(wrong)}")
    return Outcome(**{**data, "fits": analysis.Fits(data["fits"])})


def _is_stored(name: str, kind: Any, value: Any) -> bool:
    """Return whether a value is one that a field of an outcome that ran may have."""
    if kind is str:
        return value in ([""] if name == "message" else [sync.value for sync in Sync])
    if kind == analysis.Fits | None:
        return value in tuple(analysis.Fits)
    if value is None:
        return name in _MAY_LACK
    if kind in (int, int | None):
        # A run without executions, IPUs or a clock is none; one without time or arithmetic may be.
        least = 1 if name in ("executions", "ipus", "clock_hz", "samples") else 0
        return type(value) is int and least <= value < _MOST_CYCLES
    if type(value) not in (int, float):
        return False
    return name in _ANY_NUMBER or 0 <= value <= (1 if name in _SHARES else sys.float_info.max)


def outcome_of(request: Request, changes: Mapping[str, Any]) -> Outcome:
    """Return the outcome of ``request`` with these ``changes``; any error becomes its message, and is not raised.

    What an earlier one has in common with it is taken from the shared cache.
    """
    try:
        return _run(assemble(request.replace(changes)))
    except RequestMemoryError as error:
        memory = error.job.memory
        held = memory.fullest.bytes
        return Outcome(_one_line(error), fits=memory.fits, peak_bytes=held, sram_bytes=memory.sram_bytes)
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
        session = Session(job)
        return _numbers(job, session.run(job.executions))
    run = execute(job)
    learnt = run.summary.learning
    loss = learnt.mean_loss_by_step[-1] if learnt and learnt.mean_loss_by_step else None
    accuracy = learnt.evaluations[-1].accuracy if learnt and learnt.evaluations else None
    return replace(_numbers(job, run.timeline), loss=loss, accuracy=accuracy)


def _numbers(job: Job, timeline: Timeline) -> Outcome:
    first, rates = analysis.find_execution(timeline, 0), analysis.throughput_of(timeline)
    idle = analysis.bubble_of(timeline, first)
    holders = len(timeline.info.stages_of_ipu)
    available = holders * first.makespan_cycles
    return Outcome(
        sync=job.plan.sync.value,
        fits=job.memory.fits,
        peak_bytes=job.memory.fullest.bytes if job.describes_memory else None,
        sram_bytes=job.memory.sram_bytes,
        makespan_cycles=first.makespan_cycles,
        makespan_s=first.makespan_cycles / timeline.info.clock_hz,
        weight_update_period_s=rates.weight_update_period_s,
        samples_per_s=rates.samples_per_s,
        bubble=idle.idle_fraction,
        utilisation=analysis.ratio(available - idle.idle_cycles, available),
        run_cycles=rates.run_cycles,
        executions=timeline.info.executions,
        samples=rates.effective_batch_size,
        clock_hz=timeline.info.clock_hz,
        ipus=holders,
        busiest_cycles=idle.ideal_cycles,
        compute_cycles=available - idle.idle_cycles,
    )
