"""A run to look at: one that lies in a folder, or one of a scenario, for time alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ipusim.errors import FileError
from ipusim.files import has_run_file
from ipusim.runs.job import Job
from ipusim.runs.session import Session
from ipusim.scenario.load import load_job
from ipusim.scenario.write import SCENARIO_FILE
from ipusim.study.stored import read_run
from ipusim.timeline.timeline import Timeline

#: Time is simulated as it is with arithmetic.
_TIME_ALONE: Final = "numerics=off"


@dataclass(frozen=True, eq=False)
class Opened:
    """A run.

    Attributes:
        folder: where it lies, or would.
        timeline: what happened.
        job: what ran; None where the run folder does not hold its scenario.
    """

    folder: Path
    timeline: Timeline
    job: Job | None


def opened(path: Path, overrides: Sequence[str] = ()) -> Opened:
    """Return the run in the folder ``path``, or that of the scenario at ``path`` with ``overrides``.

    Raises FileError for a folder that is no run's, and for ``overrides`` of one, which has run; TimelineError for a
    damaged Timeline; and as :func:`~ipusim.scenario.load.load_job` does.
    """
    if not path.is_dir():
        job = load_job(path, (*overrides, _TIME_ALONE))
        return Opened(Path("reports") / job.name, Session(job).run(job.executions), job)
    if overrides:
        raise FileError(f"{path}: expected a scenario to change {overrides[0]!r} in, got the folder of a run")
    return Opened(path, read_run(path).timeline, job_behind(path))


def job_behind(folder: Path) -> Job | None:
    """Return what ran, for time alone, of which the results lie in ``folder``; None where that does not hold it.

    Raises as :func:`~ipusim.scenario.load.load_job` does.
    """
    scenario = folder / SCENARIO_FILE
    return load_job(scenario, (_TIME_ALONE,)) if has_run_file(scenario) else None
