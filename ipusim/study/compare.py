"""The same work under several schedules: what each takes, and which refuse it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ipusim.analysis.fit import Fit
from ipusim.errors import ProgramError
from ipusim.machine.simulate import Progress
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.assemble.memory import RequestMemoryError
from ipusim.runs.execute import execute
from ipusim.runs.problems import RequestError
from ipusim.runs.request.request import Request
from ipusim.runs.run import Run
from ipusim.schedules.named import schedule_of
from ipusim.schedules.registry import names


@dataclass(frozen=True, eq=False)
class Row:
    """One schedule's part of a comparison: a result, or the reason why there is none.

    Attributes:
        schedule: its name.
        result: of the run; None when the schedule refuses the program.
        refusal: its own words, the nearest legal counts included when the count is why.
        memory: what its IPUs hold against what they have, also where that is why it is refused;
            None where the request does not say, or where the schedule cannot lay the program out.
    """

    schedule: str
    result: Run | None
    refusal: str = ""
    memory: Fit | None = None

    @property
    def fits(self) -> bool:
        """Whether the schedule runs, and every IPU holds what it needs for that, as far as the request says."""
        return self.result is not None and not self.result.memory.too_large


def compare(request: Request, schedules: Sequence[str], progress: Progress | None = None) -> tuple[Row, ...]:
    """Run ``request`` once under each of ``schedules``, on the same data, weights and device.

    They go by their names, or by files of one's own, as in a request. Raises ProgramError, FileError or ModelError for
    a schedule that does not exist, and RequestError or RequestMemoryError for a request that
    none of them can run.
    """
    rows: list[Row] = []
    refused: list[RequestError] = []
    chosen = list(dict.fromkeys(_known(schedule, request) for schedule in schedules))
    if not chosen:
        raise ProgramError(f"expected schedules to compare out of {', '.join(names())}, got none")
    for name in chosen:
        try:
            job = assemble(request.replace({"pipeline.schedule": name}))
        except RequestMemoryError as error:
            refused.append(error)
            rows.append(Row(name, None, error.problems[0].text, error.job.memory))
        except RequestError as error:
            refused.append(error)
            rows.append(Row(name, None, "; ".join(problem.text for problem in error.problems)))
        else:
            run = execute(job, progress)
            rows.append(Row(name, run, memory=run.memory if run.describes_memory else None))
    if len(refused) == len(rows):
        assemble(request)  # a mistake of the request itself shows as it stands there
        raise refused[0]
    return tuple(rows)


def _known(schedule: str, request: Request) -> str:
    """Return what a request calls a schedule: its name as it is written, or its file."""
    found = schedule_of(schedule, request.folder).name
    return found if found == schedule.lower() else schedule
