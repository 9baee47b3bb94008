"""A scenario file as a Request, and as the Job that it asks for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ipusim.api import Job, Request, RequestError, RequestMemoryError, assemble, runs
from ipusim.app.scenario.overrides import apply_changes, apply_overrides
from ipusim.app.scenario.problems import ScenarioError, ScenarioMemoryError
from ipusim.app.scenario.source import Source, read_source


def load_request(path: Path | str, overrides: Iterable[str] = ()) -> Request:
    """Read and validate a scenario file, with overrides such as ``pipeline.repeat_count=10``.

    Raises ScenarioError with every problem found.
    """
    with placed_request(path, overrides) as request:
        return request


def load_job(path: Path | str, overrides: Iterable[str] = ()) -> Job:
    """Read a scenario file with overrides and assemble its Job.

    Raises ScenarioError with every problem found, ScenarioMemoryError for a program that does not fit its IPUs,
    and PlanError for a Plan of a schedule of one's own that breaks a rule.
    """
    return job_of(apply_overrides(read_source(Path(path)), overrides))


def placed_request(
    path: Path | str, overrides: Iterable[str] = (), changes: Mapping[str, Any] | None = None
) -> AbstractContextManager[Request]:
    """Return a block of what :func:`load_request` returns; its problems that the block raises have positions.

    ``changes`` are values of Python by dotted names. Raises ScenarioError or ScenarioMemoryError in place of the
    RequestError or RequestMemoryError of the block.
    """
    return _request_of(apply_changes(apply_overrides(read_source(Path(path)), overrides), changes or {}))


def job_of(source: Source) -> Job:
    """Return the Job of a scenario; raises as :func:`load_job` does."""
    with _request_of(source) as request:
        return assemble(request)


@contextmanager
def _request_of(source: Source) -> Iterator[Request]:
    """Yield the Request of ``source``; its problems, also those raised by the block, have positions in the file."""
    path = source.path
    # A run is called as its file where its scenario has no name; unprintable bytes of that are written as %XX.
    name = "".join(c if c.isprintable() else quote(c, errors="surrogateescape") for c in path.stem)
    with placed(source):
        yield Request.from_dict(source.data, name=name, description=source.description, folder=path.parent)


@contextmanager
def placed(source: Source) -> Iterator[None]:
    """Raise the problems of ``source`` that the block raises with their positions in its file."""
    try:
        yield
    except RequestError as error:
        problems = []
        for problem in error.problems:
            position = source.key_position(problem.path) if problem.of_key else source.position(problem.path)
            problems.append(runs.PlacedProblem(position, runs.dotted(problem.path), problem.text))
        if isinstance(error, RequestMemoryError):
            raise ScenarioMemoryError(problems, error.job, error.remedy) from None
        raise ScenarioError(problems) from None
