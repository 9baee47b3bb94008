"""The same work under several schedules and sync modes: what each takes, and which refuse it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from ipusim.analysis.fit import Fit
from ipusim.errors import ProgramError
from ipusim.machine.simulate import Progress
from ipusim.near_names import did_you_mean
from ipusim.pipeline.plan import Sync, order_and_sync
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.assemble.memory import RequestMemoryError
from ipusim.runs.execute import execute
from ipusim.runs.problems import RequestError
from ipusim.runs.request.request import Request
from ipusim.runs.run import Run
from ipusim.schedules.named import schedule_of
from ipusim.schedules.registry import Schedule, names

#: Graphcore's own schedules, and its sharding: those that are compared where none are named.
GRAPHCORES: Final = ("grouped", "interleaved", "sequential", "sharded")


@dataclass(frozen=True, eq=False)
class Row:
    """The part of a comparison of one schedule in one sync mode: a result, or the reason why there is none.

    Attributes:
        schedule: its name.
        sync: how IPUs wait for each other, or would.
        result: of the run; None when the schedule refuses the program.
        refusal: its own words, the nearest legal counts included when the count is why.
        memory: what its IPUs hold against what they have, also where that is why it is refused;
            None where the request does not say, or where the schedule cannot lay the program out.
    """

    schedule: str
    sync: Sync
    result: Run | None
    refusal: str = ""
    memory: Fit | None = None

    @property
    def name(self) -> str:
        """Schedule and sync mode, as titles have them: ``1f1b in point-to-point``."""
        return order_and_sync(self.schedule, self.sync)

    @property
    def fits(self) -> bool:
        """Whether the schedule runs, and every IPU holds what it needs for that, as far as the request says."""
        return self.result is not None and not self.result.memory.too_large


def compare(
    request: Request,
    schedules: Sequence[str] = GRAPHCORES,
    syncs: Sequence[str] = (),
    progress: Progress | None = None,
) -> tuple[Row, ...]:
    """Run ``request`` once under each of ``schedules``, on the same data, weights and device.

    They go by their names, or by files of one's own, as in a request. That is in each of the sync modes ``syncs``;
    without any in that of the request, or else in the schedule's own.

    Raises ProgramError for a schedule or a sync mode that does not exist, FileError or ModelError for a file that
    holds no schedule, and RequestError or RequestMemoryError for a request that none of them can run.
    """
    rows: list[Row] = []
    refused: list[RequestError] = []
    chosen = dict(_called(schedule, request) for schedule in schedules)
    if not chosen:
        raise ProgramError(f"expected schedules to compare out of {', '.join(names())}, got none")
    for (name, schedule), sync in product(chosen.items(), _modes(request, syncs)):
        mode = schedule.syncs[0] if sync is None else sync
        try:
            changes = {"pipeline.schedule": name} | ({"pipeline.sync": sync.value} if sync else {})
            job = assemble(request.replace(changes))
        except RequestMemoryError as error:
            refused.append(error)
            rows.append(Row(name, mode, None, error.problems[0].text, error.job.memory))
        except RequestError as error:
            refused.append(error)
            rows.append(Row(name, mode, None, "; ".join(problem.text for problem in error.problems)))
        else:
            run = execute(job, progress)
            rows.append(Row(name, mode, run, memory=run.memory if run.describes_memory else None))
    if len(refused) == len(rows):
        assemble(request)  # a mistake of the request itself shows as it stands there
        raise refused[0]
    return tuple(rows)


def _called(text: str, request: Request) -> tuple[str, Schedule]:
    """Return what a request calls a schedule, its name as it is registered or its file, and the schedule."""
    found = schedule_of(text, request.folder)
    return (found.name if found.name == text.lower() else text), found


def _modes(request: Request, syncs: Sequence[str]) -> tuple[Sync | None, ...]:
    """Return the sync modes to compare; None for each schedule's own. Raises ProgramError for one that is none."""
    known = [each.value for each in Sync]
    for name in syncs:
        if name.lower() not in known:
            hint = did_you_mean(name, known, quoted=True)
            raise ProgramError(f"expected a sync mode out of {', '.join(known)}, got {name!r}{hint}")
    if syncs:
        return tuple(dict.fromkeys(Sync(name.lower()) for name in syncs))
    asked = request.options.pipeline.sync if request.options.pipeline else None
    return (Sync(asked) if asked else None,)
