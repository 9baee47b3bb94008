"""A scenario file as a Request, and as the Job that it asks for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from ipusim.api import Job, Request, RequestError, RequestMemoryError, assemble, runs
from ipusim.app.scenario.overrides import apply_overrides
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


@contextmanager
def placed_request(path: Path | str, overrides: Iterable[str] = ()) -> Iterator[Request]:
    """Yield what :func:`load_request` returns; its problems that the block raises have positions in the file.

    Raises ScenarioError or ScenarioMemoryError in place of the RequestError or RequestMemoryError of the block.
    """
    with _request_of(apply_overrides(read_source(Path(path)), overrides)) as request:
        yield request


def job_of(source: Source) -> Job:
    """Return the Job of a scenario; raises as :func:`load_job` does."""
    with _request_of(source) as request:
        return assemble(request)


def _name_of(path: Path) -> str:
    """Return the name of a run whose scenario has none: the name of its file, without suffix.

    Unprintable bytes of a file's name (control characters, invalid UTF-8) are written as %XX.
    """
    return "".join(c if c.isprintable() else quote(c, errors="surrogateescape") for c in path.stem)


@contextmanager
def _request_of(source: Source) -> Iterator[Request]:
    """Yield the Request of ``source``; its problems, also those raised by the block, have positions in the file."""
    with placed(source):
        yield Request.from_dict(
            source.data,
            name=_name_of(source.path),
            description=source.description,
            folder=source.path.parent,
        )


@contextmanager
def placed(source: Source) -> Iterator[None]:
    """Raise the problems of ``source`` that the block raises with their positions in its file."""
    try:
        yield
    except RequestError as error:
        problems = [
            runs.PlacedProblem(
                source.key_position(problem.path) if problem.of_key else source.position(problem.path),
                runs.dotted(problem.path),
                problem.text,
            )
            for problem in error.problems
        ]
        if isinstance(error, RequestMemoryError):
            raise ScenarioMemoryError(problems, error.job) from None
        raise ScenarioError(problems) from None
