"""Load scenario files as Requests and Jobs."""

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

    Raises:
        ScenarioError: with every problem found.
        ScenarioMemoryError: if IPUs lack memory for the program.
        PlanError: if a user's schedule breaks a rule of Plans.
    """
    return job_of(apply_overrides(read_source(Path(path)), overrides))


def placed_request(
    path: Path | str, overrides: Iterable[str] = (), changes: Mapping[str, Any] | None = None
) -> AbstractContextManager[Request]:
    """Return a context with the Request of :func:`load_request`; errors inside the block get positions.

    ``changes`` are Python values by dotted names. Raises ScenarioError or ScenarioMemoryError in place of the block's
    RequestError or RequestMemoryError.
    """
    return _request_of(apply_changes(apply_overrides(read_source(Path(path)), overrides), changes or {}))


def job_of(source: Source) -> Job:
    """Return the Job of a scenario.

    Raises:
        ScenarioError: with every problem found.
        ScenarioMemoryError: if IPUs lack memory for the program.
        PlanError: if a user's schedule breaks a rule of Plans.
    """
    with _request_of(source) as request:
        return assemble(request)


@contextmanager
def _request_of(source: Source) -> Iterator[Request]:
    """Yield the Request of ``source``; problems get positions in the file, as do problems raised in the block."""
    path = source.path
    # A run without a name in the scenario gets the file's name; unprintable bytes become %XX.
    name = "".join(c if c.isprintable() else quote(c, errors="surrogateescape") for c in path.stem)
    with place_source(source):
        yield Request.from_dict(source.data, name=name, description=source.description, folder=path.parent)


@contextmanager
def place_source(source: Source) -> Iterator[None]:
    """Add positions in the file of ``source`` to problems raised in the block."""
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
