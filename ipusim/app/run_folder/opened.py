"""A run to look at: a stored one of a run folder, or one of a scenario, which is simulated for time alone."""

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
from ipusim.app.scenario.load import job_of, placed, placed_request
from ipusim.app.scenario.overrides import apply_overrides
from ipusim.app.scenario.source import Source, read_source
from ipusim.app.scenario.write import SCENARIO_FILE
from ipusim.app.study.trial import WITHOUT_ARITHMETIC
from ipusim.base.errors import FileError
from ipusim.base.files import has_run_file, resolve
from ipusim.base.units import enumerated

#: A function of a Python file, as options name it.
_FUNCTION: Final = re.compile(r".+\.py:\w+", re.DOTALL)
#: Files that a message names at most.
_NAMED: Final = 4
#: What to do about a scenario that names Python, or files elsewhere.
_TRUSTED: Final = "the option trust of explain runs and reads what it names"


@dataclass(frozen=True, eq=False)
class Opened:
    """A run.

    Attributes:
        folder: where it lies, or would.
        job: what ran; where that is not known, why, as the end of a sentence.
        stored: what happened, of a run that lies in the folder.
        waterfall: the parts of its time, as such a run has written them.
        source: the scenario, of a run that has to be simulated.
        shares: which part of a stage's backward pass computes activations again, as such a run has written it.
        older: a sentence on a folder of an older version, whose scenario is not known; empty for others.
    """

    folder: Path
    job: Job | str
    stored: Timeline | None = None
    waterfall: analysis.Waterfall | None = None
    source: Source | None = None
    shares: Mapping[tuple[pipelines.Pass, int], Fraction] = field(default_factory=dict)
    older: str = ""

    @cached_property
    def timeline(self) -> Timeline:
        """The Timeline of the run; a scenario runs when this is first read, and what it refuses has its place."""
        if self.source is None or isinstance(self.job, str):
            assert self.stored is not None
            return self.stored
        with placed(self.source):
            return Session(self.job).run(self.job.executions)


def opened(path: Path, overrides: Sequence[str] = (), *, trust: bool = False) -> Opened:
    """Return the stored run in the folder ``path``, or the run of the scenario at ``path`` with ``overrides``.

    ``trust`` is that of :func:`job_behind`, for a folder. Raises FileError for a folder that is no run's, and for
    ``overrides`` of one, which has run; TimelineError for a damaged Timeline; and as
    :func:`~ipusim.app.scenario.load.load_job` does.
    """
    if not path.is_dir():
        source = apply_overrides(read_source(path), (*overrides, WITHOUT_ARITHMETIC))
        job = job_of(source)
        return Opened(Path("reports") / job.name, job, source=source)
    if overrides:
        raise FileError(f"{path}: expected a scenario to change {overrides[0]!r} in, got the folder of a run")
    stored, behind = read_run(path), job_behind(path, trust=trust)
    older = stored.older if isinstance(behind, str) else ""
    return Opened(path, behind, stored.timeline, stored.waterfall, shares=stored.recomputed_shares, older=older)


def job_behind(folder: Path, *, trust: bool = False) -> Job | str:
    """Return the Job of the results in ``folder``, for time alone, or the reason why it is not known.

    Whoever names a folder of results has named no program: without ``trust``, no Python runs that the folder's
    scenario names, and no file is read that lies elsewhere.

    Raises as :func:`~ipusim.app.scenario.load.load_job` does.
    """
    scenario = folder / SCENARIO_FILE
    if not has_run_file(scenario):
        return "this run folder does not hold its scenario"
    with placed_request(scenario, (WITHOUT_ARITHMETIC,)) as request:
        files = request.files()
        python = [name for name in files if _FUNCTION.fullmatch(name)]
        elsewhere = [name for name in files if name not in python and not _lies_in(folder, name)]
        for names, what in ((python, "Python"), (elsewhere, "files outside of its folder")):
            if names and not trust:
                return f"{scenario} names {what}, {enumerated(map(runs.show, names), _NAMED)}; {_TRUSTED}"
        return assemble(request)


def _lies_in(folder: Path, name: str) -> bool:
    """Tell whether a file that a folder's scenario names lies in that folder, wherever links lead."""
    try:
        return resolve(folder / name).is_relative_to(resolve(folder))
    except (OSError, ValueError):  # links in a circle, a name that no file can have
        return False
