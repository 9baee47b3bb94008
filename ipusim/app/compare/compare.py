"""Run a comparison: several scenarios, or one under several schedules, orders and sync modes.

Only time is simulated, unless losses are requested: time does not depend on data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np

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
    machine,
    pipelines,
    timelines,
)
from ipusim.api import schedules as core_schedules
from ipusim.app.compare.compared_names import names_of, schedule_names
from ipusim.app.run_folder.stored import StoredRun
from ipusim.app.study.figures import outcome_figures
from ipusim.app.study.trial import time_alone
from ipusim.base.errors import FileError, IpusimError, OptionError, ProgramError

#: Graphcore's schedules and its sharding, the default set for a single scenario.
GRAPHCORE_SCHEDULES: Final = ("grouped", "interleaved", "sequential", "sharded")
#: Plans with more passes are not compared.
_MOST_PASSES: Final = 200_000
#: Selection orders that a scenario may request.
_SELECTION_ORDERS: Final = ("AUTO", *hardware.ORDERS)


@dataclass(frozen=True)
class ComparedItem:
    """Entry of a comparison: a Request or a stored run; ``text`` names the source, for example by path."""

    source: Request | StoredRun
    text: str

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.source.name if isinstance(self.source, Request) else self.source.timeline.info.name


@dataclass(frozen=True, eq=False)
class Row:
    """Run or refusal of a comparison.

    Attributes:
        source: unique name of the scenario or run folder.
        schedule: name of the schedule.
        sync: sync mode of the run, or of the refused request.
        order: requested selection order.
        result: result of a new run; None for other rows.
        folder_run: stored run of a folder.
        refusal: text of the refusal, with the nearest legal counts if the count caused it.
        summary: memory and learning as in ``summary.json``, None if unknown; memory also for a refusal by memory.
        note: sentence if the run takes the sync mode of the other runs, or has the passes of another run; else empty.
        given_sync: the scenario's original sync mode; None for stored runs, and if the user states a mode.
    """

    source: str
    schedule: str
    sync: Sync
    order: str
    result: Run | None = None
    folder_run: StoredRun | None = None
    refusal: str = ""
    summary: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    given_sync: Sync | None = None

    @property
    def name(self) -> str:
        """Schedule and sync mode, as in titles: ``1f1b in point-to-point``."""
        return pipelines.order_and_sync(self.schedule, self.sync)

    @property
    def timeline(self) -> Timeline | None:
        """Timeline of the run; None if refused."""
        run = self.result or self.folder_run
        return run.timeline if run else None

    @property
    def times(self) -> analysis.RunTimes | None:
        """Figures derived from the Timeline; None if refused."""
        if self.result is not None:
            return self.result.summary
        return self.folder_run.times if self.folder_run else None

    @property
    def waterfall(self) -> analysis.Waterfall | None:
        """Parts of the run's time; None if unknown or refused."""
        run = self.result.summary if self.result else self.folder_run
        return run.waterfall if run else None

    @property
    def has_disturbances(self) -> bool:
        """Whether the run has disturbances, with or without an effect."""
        if self.result is not None:
            return machine.disturbs(self.result.job.system)
        return self.folder_run is not None and bool(self.folder_run.summary.get("disturbances"))

    @property
    def throughput_error(self) -> str:
        """Error of the throughput in words; empty if unknown or refused."""
        run = self.result.summary if self.result else self.folder_run
        return run.throughput_error if run else ""

    @property
    def fits(self) -> analysis.Fits | None:
        """Answer to whether the program fits; None after a refusal."""
        if self.memory is not None:
            return self.memory.fits
        return None if self.times is None else analysis.Fits.UNKNOWN

    @property
    def can_be_best(self) -> bool:
        """Whether the run ended and fits, or its memory is unknown."""
        return self.times is not None and analysis.fits_or_unknown(self.fits)

    @cached_property
    def memory(self) -> analysis.FullestMemory | None:
        """Peak of the fullest IPU; None if unknown, or if the schedule cannot lay the program out."""
        memory = self.summary.get("memory")
        return None if memory is None else analysis.fullest(memory)

    @cached_property
    def stages_and_holders(self) -> tuple[int, int]:
        """Number of stages, and number of stages with their copies; (0, 0) for a refusal."""
        timeline = self.timeline
        if timeline is None:
            return 0, 0
        info = timeline.info
        return len(info.stages), sum(map(len, info.stages_of_ipu.values())) // info.replicas

    @cached_property
    def has_halves(self) -> bool:
        """Whether backward passes are split into halves, so that weight gradients may be late."""
        timeline = self.timeline
        if timeline is None:
            return False
        return bool((timelines.PASS_OF_KIND[timeline.kind] == pipelines.Pass.WEIGHT_GRADIENT).any())

    @cached_property
    def micro_batches_kept(self) -> int | None:
        """Greatest number of micro-batches that a stage keeps; None if unknown or refused."""
        summary = self.result.summary.to_dict() if self.result else self.folder_run.summary if self.folder_run else {}
        stages = (summary.get("memory") or {}).get("stages") or ()
        return max((int(stage["most_micro_batches_kept"]) for stage in stages), default=None)

    @cached_property
    def figures(self) -> dict[str, Any]:
        """Known figures by name; a refusal has only figures of memory. A loss that is not finite is missing."""
        if self.times is None:
            return outcome_figures(self.summary)
        run = self.folder_run
        whole_summary = self.result.summary.to_dict if self.result else lambda: run.summary if run else {}
        return outcome_figures({**self.times.times_dict(), **self.summary}, whole_summary)


@dataclass(frozen=True)
class _Variant:
    """Row of a comparison before its run.

    Attributes:
        row: row with the schedule, sync mode and selection order of the run.
        changes: options that differ from the request's, by dotted name.
        states_sync: whether the variant, the request or the schedule states a sync mode; plain user functions do not.
    """

    row: Row
    changes: Mapping[str, Any] = field(default_factory=dict)
    states_sync: bool = True


def compare(
    requests: Request | Sequence[ComparedItem],
    schedules: Sequence[str] | None = None,
    syncs: Sequence[str] = (),
    orders: Sequence[str] = (),
    *,
    losses: bool = False,
    progress: Progress | None = None,
) -> tuple[Row, ...]:
    """Run ``requests`` under every combination of ``schedules``, ``orders`` and ``syncs``.

    Schedules are names or Python files, as in a request; ``["all"]`` selects every schedule. An omitted option keeps
    the request's value. A single Request without options runs under Graphcore's schedules. Stored runs appear
    unchanged. ``losses`` adds arithmetic.

    Raises OptionError for an unknown or repeated schedule, order or sync mode and for options of folders, ProgramError
    for repeated entries, FileError or ModelError for a file without a schedule, FileError for a single folder, and
    RequestError or RequestMemoryError if no Request can run.
    """
    items = [ComparedItem(requests, requests.name)] if isinstance(requests, Request) else list(requests)
    has_variants = schedules is not None or bool(orders or syncs)
    _check(items, has_variants)
    if not has_variants and len(items) == 1:
        schedules = GRAPHCORE_SCHEDULES
    rows: list[Row] = []
    errors: list[RequestError] = []
    variants = [
        [_Variant(_stored_row(source, item.source))]
        if isinstance(item.source, StoredRun)
        else [*_variants(source, item.source, schedules, orders, syncs)]
        for item, source in zip(items, _sources(items), strict=True)
    ]
    modes = {variant.row.sync for variants_of_item in variants for variant in variants_of_item if variant.states_sync}
    mode = modes.pop() if len(modes) == 1 else None
    for item, variants_of_item in zip(items, variants, strict=True):
        if isinstance(item.source, StoredRun):
            rows += [variant.row for variant in variants_of_item]
            continue
        for variant in variants_of_item:
            row, error = _run(item.source, variant, mode, losses, progress)
            rows.append(row)
            errors += [error] if error else []
    rows = [replace(row, note=row.note or _same_passes(row, rows[:number])) for number, row in enumerate(rows)]
    if len(errors) == len(rows):
        for item in items:
            if isinstance(item.source, Request):
                assemble(item.source)  # reports the request's mistake with its place
        raise errors[0]
    return tuple(rows)


def _check(items: Sequence[ComparedItem], has_variants: bool) -> None:
    """Check the entries of a comparison.

    Raises FileError for a single folder, OptionError for options of folders, ProgramError for repeated entries.
    """
    folders = [item for item in items if isinstance(item.source, StoredRun)]
    if len(items) == len(folders) == 1:
        text = "expected a second run to compare with, got only one run folder: name another run, or its scenario"
        raise FileError(f"{items[0].text}: {text}")
    if has_variants and len(items) == len(folders):
        text = "expected a scenario to vary, got run folders, which cannot vary: leave {} and {} out"
        raise OptionError("schedules", text, "orders", "sync")
    names = [item.text for item in items]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise ProgramError(f"{repeated}: expected each run once, got this run a second time")


def _sources(items: Sequence[ComparedItem]) -> list[str]:
    """Return distinct names of the same kind: names of runs, else names of files, else the user's texts."""
    names = [[run.name, Path(run.text).name, run.text] for run in items]
    counts = Counter(name for alternatives in names for name in dict.fromkeys(alternatives))
    kinds = list(zip(*names, strict=True))
    return list(next((kind for kind in kinds if all(counts[name] == 1 for name in kind)), kinds[-1]))


def _variants(
    source: str, request: Request, schedules: Sequence[str] | None, orders: Sequence[str], syncs: Sequence[str]
) -> Iterator[_Variant]:
    """Yield a variant for every combination of schedules, selection orders and sync modes."""
    pipeline, names = request.options.pipeline, list[str | None]([None])
    if schedules is not None:
        names = [*schedule_names(schedules, request.folder)]
    given_schedule = pipeline.schedule
    if pipeline.batch_serialization_iterations > 1 and not request.is_set(("pipeline", "schedule")):
        given_schedule = core_schedules.default_serialized().name
    given_sync, _ = _sync_of(request, given_schedule, None)
    selection_orders = names_of("orders", "selection order", orders, _SELECTION_ORDERS) or [None]
    modes = names_of("sync", "sync mode", syncs, [member.value for member in Sync]) or [None]
    for name, order, mode in product(names, selection_orders, modes):
        schedule = name or given_schedule
        sync, states_sync = _sync_of(request, schedule, mode)
        row_order = order or request.options.system.selection_order
        changes = {"pipeline.schedule": name, "system.selection_order": order, "pipeline.sync": mode}
        yield _Variant(
            Row(source, schedule, sync, row_order, given_sync=None if mode else given_sync),
            {path: value for path, value in changes.items() if value is not None},
            states_sync,
        )


def _sync_of(request: Request, schedule: str, mode: str | None) -> tuple[Sync, bool]:
    """Return the sync mode of a request under a schedule, and whether request, schedule or ``mode`` states it."""
    states_sync, sync = True, Sync.LOCK_STEP
    with suppress(IpusimError):  # refused in every mode
        entry = core_schedules.schedule_of(schedule, request.folder)
        states_sync, sync = entry.states_sync, entry.syncs[0]
    stated_mode = mode or request.options.pipeline.sync
    return (Sync(stated_mode), True) if stated_mode else (sync, states_sync)


def _run(
    request: Request, variant: _Variant, mode: Sync | None, losses: bool, progress: Progress | None
) -> tuple[Row, RequestError | None]:
    """Run a variant. Return its row, and the error of a refused variant.

    A variant without a stated sync mode runs in ``mode``, the mode of the other runs; None if their modes differ.
    """
    row, changes = variant.row, variant.changes
    if not (mode is None or mode is row.sync or variant.states_sync):
        note = (
            "the schedule states no sync mode, and runs in the sync mode of the other runs; without other runs the "
            f"mode is {row.sync.words}."
        )
        row, changes = replace(row, sync=mode, note=note), {**changes, "pipeline.sync": mode.value}
    try:
        job = assemble(request.replace(changes) if losses else time_alone(request, changes))
    except RequestError as error:
        refusal = "; ".join(problem.text for problem in error.problems)
        summary = {"memory": error.job.memory.summary} if isinstance(error, RequestMemoryError) else {}
        return replace(row, refusal=refusal, summary=summary), error
    run = execute(job, progress)
    memory = None if run.memory.fits is analysis.Fits.UNKNOWN else run.summary.memory
    summary = {"memory": analysis.as_plain(memory), "learning": analysis.as_plain(run.summary.learning)}
    return replace(row, result=run, summary=summary), None


def _same_passes(row: Row, earlier_rows: Sequence[Row]) -> str:
    """Return a note on the first earlier run of the scenario with the same plan; empty without an equal plan."""
    for earlier in earlier_rows:
        is_same_request = (row.source, row.sync, row.order) == (earlier.source, earlier.sync, earlier.order)
        if not is_same_request or row.result is None or earlier.result is None:
            continue
        job, earlier_job = row.result.job, earlier.result.job
        shape, earlier_shape = job.program.shape, earlier_job.program.shape
        takes_equal_time = row.result.summary.makespan_cycles == earlier.result.summary.makespan_cycles
        if shape != earlier_shape or not takes_equal_time or shape.passes > _MOST_PASSES:
            continue
        plan, earlier_plan = job.whole.plan, earlier_job.whole.plan
        is_alike = (plan.emitted, plan.copy_rule) == (earlier_plan.emitted, earlier_plan.copy_rule)
        if is_alike and np.array_equal(plan.instructions, earlier_plan.instructions):
            note = f"the same passes in the same order as {earlier.schedule}"
            has_rounds = core_schedules.Feature.GROUPS in job.schedule.supports
            if has_rounds and len(set(shape.mapping)) == shape.stages:
                note += ", because each IPU has one stage: pipeline.virtual_stages puts several on each"
            return f"{note}."
    return ""


def _stored_row(source: str, run: StoredRun) -> Row:
    info = run.timeline.info
    summary = {"memory": run.summary["memory"] if run.fullest else None, "learning": run.summary.get("learning")}
    return Row(source, info.schedule, info.sync, info.selection_order, folder_run=run, summary=summary)
