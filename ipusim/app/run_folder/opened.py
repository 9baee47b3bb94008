"""Open runs to analyse: stored runs, or timing-only runs of scenarios."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Final

from ipusim.api import Job, Session, Timeline, analysis, assemble, pipelines, runs
from ipusim.app.run_folder.stored import read_run
from ipusim.app.scenario.load import job_of, place_source, placed_request
from ipusim.app.scenario.overrides import apply_overrides
from ipusim.app.scenario.source import Source, read_source
from ipusim.app.scenario.write import SCENARIO_FILE
from ipusim.app.study.trial import WITHOUT_ARITHMETIC
from ipusim.base.errors import FileError
from ipusim.base.files import has_run_file, resolve
from ipusim.base.units import enumerated

#: Python function as named in options: file and function.
_FUNCTION: Final = re.compile(r".+\.py:\w+", re.DOTALL)
#: Maximum number of files named in a message.
_MOST_NAMES: Final = 4
#: Hint for scenarios that name Python or files elsewhere.
_TRUST_HINT: Final = "the option trust of explain runs and reads these files"


@dataclass(frozen=True, eq=False)
class RunSource:
    """Run to analyse.

    Attributes:
        folder: folder of the run, existing or planned.
        job: Job of the run, or the reason for its absence as the end of a sentence.
        stored_timeline: Timeline of a stored run.
        waterfall: parts of a stored run's time.
        source: scenario to simulate.
        shares: recomputed share of every stage's backward pass in a stored run.
        version_note: sentence on an older folder without a known scenario; otherwise empty.
    """

    folder: Path
    job: Job | str
    stored_timeline: Timeline | None = None
    waterfall: analysis.Waterfall | None = None
    source: Source | None = None
    shares: Mapping[tuple[pipelines.Pass, int], Fraction] = field(default_factory=dict)
    version_note: str = ""

    @cached_property
    def timeline(self) -> Timeline:
        """Timeline of the run; the first access simulates a scenario, with places in its errors."""
        if self.source is None or isinstance(self.job, str):
            assert self.stored_timeline is not None
            return self.stored_timeline
        with place_source(self.source):
            return Session(self.job).run(self.job.executions)


def open_source(path: Path, overrides: Sequence[str] = (), *, trust: bool = False) -> RunSource:
    """Return a folder's stored run, or a scenario's run with ``overrides``.

    Without ``trust``, the scenario in a folder runs no Python and reads no files outside of the folder.

    Raises:
        FileError: for a folder without a run, and for ``overrides`` of a folder.
        TimelineError: for a damaged Timeline.
        ScenarioError: with every problem of the scenario.
        ScenarioMemoryError: if IPUs lack memory for the program.
        PlanError: if a user's schedule breaks a rule of Plans.
    """
    if not path.is_dir():
        source = apply_overrides(read_source(path), (*overrides, WITHOUT_ARITHMETIC))
        job = job_of(source)
        return RunSource(Path("reports") / job.name, job, source=source)
    if overrides:
        raise FileError(f"{path}: expected a scenario with a key {overrides[0]!r} to change, got a run folder")
    run, job_or_reason = read_run(path), job_behind(path, trust=trust)
    version_note = run.version_note if isinstance(job_or_reason, str) else ""
    return RunSource(
        path, job_or_reason, run.timeline, run.waterfall, shares=run.recomputed_shares, version_note=version_note
    )


def job_behind(folder: Path, *, trust: bool = False) -> Job | str:
    """Return the Job of a results folder, or the reason for its absence.

    Runs of the Job are timing-only.

    A user who opens a results folder has not chosen the programs of the scenario. Without ``trust``, Python named in
    the scenario does not run, and files outside the folder are not read.

    Raises:
        ScenarioError: with every problem found.
        ScenarioMemoryError: if IPUs lack memory for the program.
        PlanError: if a user's schedule breaks a rule of Plans.
    """
    scenario = folder / SCENARIO_FILE
    if not has_run_file(scenario):
        return "this run folder does not hold its scenario"
    with placed_request(scenario, (WITHOUT_ARITHMETIC,)) as request:
        files = request.files()
        python = [name for name in files if _FUNCTION.fullmatch(name)]
        elsewhere = [name for name in files if name not in python and not _lies_in(folder, name)]
        for names, reason in ((python, "Python"), (elsewhere, "files outside of its folder")):
            if names and not trust:
                return f"{scenario} names {reason}, {enumerated(map(runs.show, names), _MOST_NAMES)}; {_TRUST_HINT}"
        return assemble(request)


def _lies_in(folder: Path, name: str) -> bool:
    """Return whether a file of the scenario is inside the folder after resolving links."""
    try:
        return resolve(folder / name).is_relative_to(resolve(folder))
    except (OSError, ValueError):  # circular links, invalid file names
        return False
