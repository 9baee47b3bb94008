"""Record programs for profiles: a program's job, and its first session runs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np

from ipusim.api import Array, Job, Request, Run, Session, Timeline, analysis, pricing, runs
from ipusim.base.errors import ProgramStateError
from ipusim.ipu.runtime.context import Scoped


@dataclass(eq=False)
class ProgramRecord:
    """A program and the kept session runs.

    Attributes:
        job: job of the program.
        steps: number of kept session runs, from the first run.
        run_count: number of all session runs.
    """

    job: Job
    steps: int = 0
    run_count: int = 0
    _timeline: Timeline | None = None
    _results: list[list[tuple[Any, ...]]] = field(default_factory=list)
    _weights: dict[str, Array] = field(default_factory=dict)
    _not_finite: str = ""
    #: Exchanges between hosts before a session run, by the number of the run's first execution.
    _exchanges: dict[int, tuple[pricing.HostExchange, ...]] = field(default_factory=dict)
    _late: list[int] = field(default_factory=list)

    def keep(self, session: Session, timeline: Timeline) -> None:
        """Keep the session run that just ended."""
        if session.before:
            self._exchanges[self.steps * self.job.program.repeat_count] = session.before
        self._late += session.late
        self.steps += 1
        self._timeline = timeline if self.steps == 1 else None
        if not session.computes:
            return
        if not self._results:
            self._results = [[] for _ in session.results]
            self._not_finite = session.not_finite
        for results, new in zip(self._results, session.results, strict=True):
            results.extend(new)
        self._weights = session.variables()

    def as_job(self, name: str = "") -> Job:
        """Return the Job of the recorded session runs, renamed to ``name`` if given."""
        notes = list(self.job.notes)
        if self.steps < self.run_count:
            notes.append(f"The profile has the first {self.steps} of {self.run_count} session runs.")
        late = tuple(self._late) if any(self._late) else ()
        job = replace(self.job, steps=self.steps, notes=tuple(notes), between=dict(self._exchanges), late=late)
        if not name:
            return job
        return replace(job, program=replace(job.program, name=name), request=replace(job.request, name=name))

    def run(self, request: Request, stages: tuple[str, ...] = (), layers: tuple[str, ...] = ()) -> Run:
        """Return all kept session runs as one Run, with consecutive steps like a scenario's.

        The Run gets name and request from ``request``; ``stages`` are stage names in pictures, ``layers`` the layer
        names per stage.
        """
        job = replace(self.as_job(request.name), request=request)
        # Arithmetic does not change times, and steps follow each other as in an uninterrupted run.
        timeline = self._timeline or Session(replace(job, workload=None)).run(job.executions)
        info = replace(
            timeline.info,
            name=job.name,
            stages=stages or timeline.info.stages,
            layers=layers,
            title=runs.title_of(request.description),
        )
        timeline = timeline.with_info(info)
        return runs.sum_up(job, timeline, self._learning())

    def _learning(self) -> analysis.Learning | None:
        if not self._results:
            return None
        losses, outputs = analysis.read_results(self.job.program, self._results)
        return analysis.Learning(losses, outputs, self._weights, (), None, self._not_finite)


class Recorder:
    """Keeps session runs of all programs, from any thread, while active.

    Attributes:
        folder: target folder of the profile, or None for runs without a profile.
        laid_out: number of programs built while the recorder is active, whether they run or not.
    """

    def __init__(self, steps: int | None = None, folder: Path | None = None) -> None:
        """Keep ``steps`` session runs per program; by default as many as one trace can hold."""
        self._steps, self.folder = steps, folder
        self._records: dict[int, ProgramRecord] = {}
        self._lock = Lock()
        self.laid_out = 0

    @property
    def programs(self) -> tuple[ProgramRecord, ...]:
        """Executed programs, ordered by first session run."""
        return tuple(self._records.values())

    def check(self, place: str) -> None:
        """Raise ProgramStateError if no program ran; ``place`` names the place in the message."""
        if self._records:
            return
        runs_text = f"{self.laid_out} that no session has run" if self.laid_out else "none"
        raise ProgramStateError(f"{place}: expected a pipeline or a loop that runs on IPUs, got {runs_text}")

    def note(self, session: Session, timeline: Timeline) -> None:
        """Record the end of a session run."""
        job = session.job
        with self._lock:
            result = self._records.setdefault(id(job), ProgramRecord(job))
            result.run_count += 1
            if result.steps == result.run_count - 1 and result.steps < self._max_session_runs(session):
                result.keep(session, timeline)

    def _max_session_runs(self, session: Session) -> int:
        """Return the number of session runs to keep, at most a scenario's maximum."""
        job = session.job
        first = [np.asarray(item) for results in session.results for element in results[:1] for item in element]
        # Memory holds three copies: the results as they arrive, one joined array, and the file.
        results = 3 * sum(item.nbytes for item in first) * max(map(len, session.results), default=0)
        capacity = runs.most_session_runs(job, results)
        return capacity if self._steps is None else min(self._steps, capacity)


#: Active recorder; None if nothing is recorded.
recorder: Final[Scoped[Recorder | None]] = Scoped("recorder", None)
#: Sets a block's recorder. Programs built in the block are recorded in other threads, too.
recording: Final = recorder.set_to
