"""Several scenarios and runs, or one under several schedules, orders and sync modes: what each takes, and which refuse.

Only time is asked, so that nothing computes unless losses are wanted: time does not depend on data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Final

from ipusim.api import (
    Progress,
    Request,
    RequestError,
    RequestMemoryError,
    Run,
    Sync,
    Timeline,
    analysis,
    assemble,
    execute,
    hardware,
    pipelines,
)
from ipusim.api import schedules as core_schedules
from ipusim.app.run_folder.stored import StoredRun
from ipusim.app.study.trial import time_alone
from ipusim.base.errors import FileError, IpusimError, OptionError, ProgramError
from ipusim.base.near_names import did_you_mean

#: Graphcore's own schedules, and its sharding: those that are compared where one scenario stands alone.
GRAPHCORES: Final = ("grouped", "interleaved", "sequential", "sharded")
#: What a scenario can ask for as its selection order.
_ORDERS: Final = ("AUTO", *hardware.ORDERS)


@dataclass(frozen=True)
class Compared:
    """One entry of a comparison: a Request or a stored run; ``said`` is the user's text for it, such as a path."""

    what: Request | StoredRun
    said: str

    @property
    def name(self) -> str:
        """The run's own name."""
        return self.what.name if isinstance(self.what, Request) else self.what.timeline.info.name


@dataclass(frozen=True, eq=False)
class Row:
    """One run of a comparison, or the reason why there is none.

    Attributes:
        source: what of all that is compared it is a run of, by a name that nothing else has.
        schedule: its name.
        sync: how IPUs wait for each other, or would.
        order: the selection order that was asked for.
        result: of the run; None when it is refused, and of a run that lies in a folder.
        stored: the run that lies in a folder.
        refusal: its own words, the nearest legal counts included when the count is why.
        memory: the fullest of its IPUs against what it has, also where that is why it is refused;
            None where nothing says it, or where the schedule cannot lay the program out.
        note: a sentence on the sync mode, if the other runs decide it; else empty.
    """

    source: str
    schedule: str
    sync: Sync
    order: str
    result: Run | None = None
    stored: StoredRun | None = None
    refusal: str = ""
    memory: analysis.FullestMemory | None = None
    note: str = ""

    @property
    def name(self) -> str:
        """Schedule and sync mode, as titles have them: ``1f1b in point-to-point``."""
        return pipelines.order_and_sync(self.schedule, self.sync)

    @property
    def timeline(self) -> Timeline | None:
        """The Timeline of the run; None where it is refused."""
        ran = self.result or self.stored
        return ran.timeline if ran else None

    @property
    def times(self) -> analysis.RunTimes | None:
        """Every number that the Timeline tells; None when it is refused."""
        if self.result is not None:
            return self.result.summary
        return self.stored.times if self.stored else None

    @property
    def waterfall(self) -> analysis.Waterfall | None:
        """The parts of its time; None where they are not known, and of one that is refused."""
        if self.result is not None:
            return self.result.summary.waterfall
        return self.stored.waterfall if self.stored else None

    @property
    def throughput_error(self) -> str:
        """How far off its throughput may be, in words; empty where nothing says it, and of one that is refused."""
        if self.result is not None:
            return self.result.summary.throughput_error
        return self.stored.throughput_error if self.stored else ""

    @property
    def fits(self) -> analysis.Fits | None:
        """The answer to whether the program fits its memory; None where a rule refuses it."""
        if self.memory is not None:
            return self.memory.fits
        return None if self.times is None else analysis.Fits.UNKNOWN

    @property
    def can_be_best(self) -> bool:
        """Whether it ran, and fits its memory or has no known memory."""
        return self.times is not None and analysis.usable(self.fits)

    @property
    def last_loss(self) -> float | None:
        """The mean loss of the last step; None where only time was simulated, and where it is no finite number."""
        if self.stored is not None:
            return self.stored.last_loss
        learning = self.result.summary.learning if self.result else None
        return learning.mean_loss_by_step[-1] if learning and learning.mean_loss_by_step else None


@dataclass(frozen=True)
class _Variant:
    """The options that replace those of a request; None keeps the request's own."""

    schedule: str | None
    order: str | None
    sync: Sync | None
    note: str = ""

    def of(self, request: Request, losses: bool) -> Request:
        changes: dict[str, Any] = {"pipeline.schedule": self.schedule, "system.selection_order": self.order}
        changes["pipeline.sync"] = self.sync.value if self.sync else None
        options = {name: value for name, value in changes.items() if value is not None}
        return request.replace(options) if losses else time_alone(request, options)


def compare(
    requests: Request | Sequence[Compared],
    schedules: Sequence[str] | None = None,
    syncs: Sequence[str] = (),
    orders: Sequence[str] = (),
    *,
    losses: bool = False,
    progress: Progress | None = None,
) -> tuple[Row, ...]:
    """Run each of ``requests`` once under each of ``schedules``, ``orders`` and ``syncs``, on its own data.

    Schedules go by their names, or by files of one's own, as in a request; ``["all"]`` are all that there are. Of what
    is left out, each keeps its own; a single Request with nothing else to compare it by runs under Graphcore's
    schedules. Runs that lie in folders stand beside them as they are. ``losses`` has them compute too.

    Raises ProgramError for a schedule, an order or a sync mode that does not exist or stands there twice, FileError or
    ModelError for a file that holds no schedule, FileError for a folder alone, OptionError for folders that were to be
    varied, and RequestError or RequestMemoryError where no Request can run.
    """
    compared = [Compared(requests, requests.name)] if isinstance(requests, Request) else list(requests)
    varied = schedules is not None or bool(orders or syncs)
    _check(compared, varied)
    if not varied and len(compared) == 1:
        schedules = GRAPHCORES
    rows: list[Row] = []
    refused: list[RequestError] = []
    variants = [
        [] if isinstance(item.what, StoredRun) else [*_variants(item.what, schedules, orders, syncs)]
        for item in compared
    ]
    mode = _common_mode(compared, variants)
    for item, source, tried in zip(compared, _sources(compared), variants, strict=True):
        if isinstance(item.what, StoredRun):
            rows.append(_stored_row(source, item.what))
            continue
        for variant in tried:
            row, error = _run(source, item.what, _in_mode(item.what, variant, mode), losses, progress)
            rows.append(row)
            refused += [error] if error else []
    if len(refused) == len(rows):
        for item in compared:
            if isinstance(item.what, Request):
                assemble(item.what)  # a mistake of the request itself shows as it stands there
        raise refused[0]
    return tuple(rows)


def _check(compared: Sequence[Compared], varied: bool) -> None:
    """Refuse what makes no comparison."""
    folders = [item for item in compared if isinstance(item.what, StoredRun)]
    if len(compared) == len(folders) == 1:
        text = "expected something to compare this run with, got its folder alone: name another run, or its scenario"
        raise FileError(f"{compared[0].said}: {text}")
    if varied and len(compared) == len(folders):
        text = "expected a scenario to vary, got runs that lie in folders: they stay as they are; leave {} and {} out"
        raise OptionError("schedules", text, "orders", "sync")
    said = [item.said for item in compared]
    if twice := next((name for name in said if said.count(name) > 1), None):
        raise ProgramError(f"{twice}: expected each to compare once, got it a second time")


def _sources(compared: Sequence[Compared]) -> list[str]:
    """Return a distinct name for each entry: its own name, that of its file or folder, or the user's text for it."""
    names = [[run.name, Path(run.said).name, run.said] for run in compared]
    taken = Counter(name for alternatives in names for name in dict.fromkeys(alternatives))
    return [next((name for name in alternatives if taken[name] == 1), alternatives[-1]) for alternatives in names]


def _variants(
    request: Request, schedules: Sequence[str] | None, orders: Sequence[str], syncs: Sequence[str]
) -> Iterator[_Variant]:
    chosen: list[str | None] = [None]
    if schedules is not None:
        chosen = [*_once("schedule", [_called(schedule, request) for schedule in core_schedules.called(schedules)])]
        if not chosen:
            raise ProgramError(f"expected schedules to compare out of {', '.join(core_schedules.names())}, got none")
    laid_out = _known("selection order", orders, _ORDERS) or [None]
    modes = _known("sync mode", syncs, [member.value for member in Sync]) or [None]
    for schedule, order, mode in product(chosen, laid_out, modes):
        yield _Variant(schedule, order, Sync(mode) if mode else None)


def _common_mode(compared: Sequence[Compared], variants: Sequence[Sequence[_Variant]]) -> Sync | None:
    """Return the sync mode that all runs with a stated mode share; None if their modes differ."""
    stored = [item.what.timeline.info.sync for item in compared if isinstance(item.what, StoredRun)]
    requested = [
        _effective(item.what, variant)[1]
        for item, tried in zip(compared, variants, strict=True)
        if isinstance(item.what, Request)
        for variant in tried
        if _states_sync(item.what, variant)
    ]
    modes = {*stored, *requested}
    return modes.pop() if len(modes) == 1 else None


def _states_sync(request: Request, variant: _Variant) -> bool:
    """Return whether the variant, its request or its schedule states a sync mode; a user's plain function does not."""
    if variant.sync or request.options.pipeline.sync:
        return True
    try:
        return core_schedules.schedule_of(_effective(request, variant)[0], request.folder).states_sync
    except IpusimError:  # the row is refused, in whichever mode
        return True


def _in_mode(request: Request, variant: _Variant, mode: Sync | None) -> _Variant:
    """Return a variant in the sync mode of the other runs, if nothing states its own."""
    own = _effective(request, variant)[1]
    if mode is None or mode is own or _states_sync(request, variant):
        return variant
    note = f"the schedule states no sync mode, and runs in that of the other runs; alone it runs in {own.words}."
    return replace(variant, sync=mode, note=note)


def _called(text: str, request: Request) -> str:
    """Return the schedule's name in a request: that of the registry, or its file."""
    entry = core_schedules.schedule_of(text, request.folder)
    return entry.name if entry.name == text.lower() else text


def _known(what: str, requested: Sequence[str], known: Sequence[str]) -> list[str | None]:
    """Return names as they stand in ``known``, whatever their case; raises ProgramError for one that does not."""
    named = {name.lower(): name for name in known}
    for name in requested:
        if name.lower() not in named:
            hint = did_you_mean(name, known, quoted=True)
            raise ProgramError(f"expected a {what} out of {', '.join(known)}, got {name!r}{hint}")
    return [*_once(what, [named[name.lower()] for name in requested])]


def _once(what: str, requested: Sequence[str]) -> list[str]:
    if twice := next((name for name in requested if requested.count(name) > 1), None):
        raise ProgramError(f"expected each {what} once, got {twice!r} a second time")
    return list(requested)


def _run(
    source: str, request: Request, variant: _Variant, losses: bool, progress: Progress | None
) -> tuple[Row, RequestError | None]:
    """Return the row of ``request`` in one variant, and why it is refused, if it is."""
    schedule, sync, order = _effective(request, variant)
    row = Row(source, schedule, sync, order, note=variant.note)
    try:
        job = assemble(variant.of(request, losses))
    except RequestMemoryError as error:
        return replace(row, refusal=error.problems[0].text, memory=analysis.fullest(error.job.memory)), error
    except RequestError as error:
        return replace(row, refusal="; ".join(problem.text for problem in error.problems)), error
    run = execute(job, progress)
    known = run.memory.fits is not analysis.Fits.UNKNOWN
    return replace(row, result=run, memory=analysis.fullest(run.memory) if known else None), None


def _effective(request: Request, variant: _Variant) -> tuple[str, Sync, str]:
    """Return schedule, sync mode and selection order of a variant, those that the request says included."""
    pipeline, system = request.options.pipeline, request.options.system
    schedule = variant.schedule or pipeline.schedule
    if pipeline.batch_serialization_iterations > 1 and not (
        variant.schedule or request.is_set(("pipeline", "schedule"))
    ):
        schedule = core_schedules.default_serialized().name
    sync = variant.sync or (Sync(pipeline.sync) if pipeline.sync else None)
    if sync is None:
        try:
            sync = core_schedules.schedule_of(schedule, request.folder).syncs[0]
        except IpusimError:  # the row is refused, in whichever mode
            sync = Sync.LOCK_STEP
    return schedule, sync, variant.order or system.selection_order


def _stored_row(source: str, stored: StoredRun) -> Row:
    info = stored.timeline.info
    memory = None if stored.fits is analysis.Fits.UNKNOWN else stored.fullest
    return Row(source, info.schedule, info.sync, info.selection_order, stored=stored, memory=memory)
