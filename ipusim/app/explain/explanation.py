"""Explain the time of a run: idle time by cause, the critical path, and the effect of changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ipusim.api import Job, Sync, Timeline, analysis, pipelines, runs, timelines
from ipusim.app.explain.stragglers import Stragglers, stragglers
from ipusim.app.explain.trial import WhatIf
from ipusim.app.explain.what_if import LEAST_GAIN, ON_REQUEST, ChangePair, requested_changes, what_if
from ipusim.app.explain.what_words import help_words, what_if_dict, what_if_tables
from ipusim.app.render.execution_trace import trace_with_path
from ipusim.app.render.figures import Chart
from ipusim.app.render.idle_causes import idle_chart
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.render.tables import Table
from ipusim.app.render.verdict import disturbance_words, waterfall_table, waterfall_words
from ipusim.app.render.window import ShownPart, part_window
from ipusim.app.run_folder.report import EXPLANATION_FILES
from ipusim.app.run_folder.report_options import check_execution
from ipusim.app.study.result import Result
from ipusim.base.errors import OptionError
from ipusim.base.looks import Look
from ipusim.base.units import enumerated, enumerated_rows, format_seconds

#: Maximum number of parts of the critical path in a table; a last row sums the other parts.
_MOST_ROWS: Final = 12


@dataclass(frozen=True, eq=False)
class Explanation(Result):
    """Explanation of a run's time.

    Attributes:
        timeline: Timeline of the run.
        execution: number of the execution whose idle time is explained; None for the whole run.
        waterfall: parts of the whole run's time, from the run's files if the scenario is unknown; None if the files
            lack the parts.
        idle: idle intervals of every IPU, with causes.
        path: critical path of the whole run.
        parts: critical path by kind and stage.
        what_ifs: outcome of every change, best first, or requested changes in their order; None for an unknown
            scenario.
        unknown_reason: reason why the scenario is unknown, as the end of a sentence; empty for a known scenario.
        pairs: outcomes of every two requested changes at once.
        stragglers: cost of stragglers; None unless requested.
        disturbances: cost of the run's disturbances; None without disturbances, and for an unknown scenario.
        memory: peaks of the IPUs and their memory; None for an unknown scenario.
        sensitivities: change of the run's cycles if each pass of a stage takes a cycle more or less; None for an
            unknown scenario.
        picture: title, size and theme of both charts.
    """

    timeline: Timeline
    execution: int | None
    waterfall: analysis.Waterfall | None
    idle: analysis.IdleCauses
    path: analysis.CriticalPath
    parts: tuple[analysis.PathPart, ...]
    what_ifs: tuple[WhatIf, ...] | None
    unknown_reason: str = ""
    pairs: tuple[ChangePair, ...] = ()
    stragglers: Stragglers | None = None
    disturbances: analysis.DisturbanceCost | None = None
    memory: analysis.Fit | None = None
    sensitivities: runs.Sensitivities | None = None
    picture: Picture = DEFAULT

    names = EXPLANATION_FILES

    def printout(self) -> Iterator[str | Table]:
        """Yield the verdict and the tables."""
        yield from self.words()
        yield ""
        yield from self.tables()

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for every IPU: cycles by activity and by cause of waiting."""
        return [{"ipu": row["ipu"], **row["cycles"]} for row in self._ipu_cycles()]

    def charts(self) -> dict[str, Callable[[], Chart]]:
        """Return functions by name, for a bar chart of IPUs' time and for a trace with the critical path.

        The trace covers the chosen execution; by default the executions around the first failure of an IPU, or the
        first execution if no IPU fails.
        """
        window = partial(part_window, self.timeline, ShownPart(execution=self.execution))
        return {
            "idle_causes": lambda: idle_chart(self.timeline, self.ipu_time, self.picture, self._growth()),
            "critical_path": lambda: trace_with_path(self.timeline, self.path.rows, window(), self.picture),
        }

    @property
    def path_cycles(self) -> int:
        """Length of the critical path, equal to the run's length."""
        return sum(part.cycles for part in self.parts)

    @cached_property
    def ipu_time(self) -> tuple[tuple[Look, npt.NDArray[np.int64]], ...]:
        """Parts of every IPU's time in the explained window, see :func:`~ipusim.analysis.causes.ipu_time`."""
        parts = self.waterfall
        return analysis.ipu_time(self.idle, parts if parts is None or self.execution is None else parts.of_one())

    def words(self) -> Iterator[str]:
        """Yield the verdict: parts of the time, the most helpful changes, memory problems, and unknowns."""
        yield from self.where_words()
        yield from self._help_words()
        if self.memory is not None and self.memory.fits is not analysis.Fits.YES:
            yield self.memory.verdict()

    def where_words(self) -> Iterator[str]:
        """Yield sentences about parts of the time and disturbances, as in the verdict."""
        if self.waterfall is not None:
            yield f"Time goes into {waterfall_words(self.waterfall).rstrip('.')}."
        if self.disturbances is not None:
            clock_hz = self.timeline.info.clock_hz
            yield f"Disturbances: {disturbance_words(self.disturbances, lambda cycles: cycles / clock_hz)}."

    def _help_words(self) -> Iterator[str]:
        """Yield sentences about the effect of changes, unknowns, and the cost of stragglers."""
        if self.what_ifs is None:
            yield f"The effect of changes is not known: {self.unknown_reason}."
            return
        yield from help_words(self.what_ifs)
        yield from self._balance_words(self.what_ifs)
        if self.sensitivities is not None and self.sensitivities.unknown:
            yield f"The sensitivity of the run to a cycle of each pass is not known: {self.sensitivities.unknown}."
        elif self.sensitivities is not None and any(self.sensitivities.copies):
            grows, falls = ("?" if cycles is None else f"{cycles:,}" for cycles in self.sensitivities.copies)
            yield f"One cycle more in each copy between IPUs adds {grows} cycles to the run; one less saves {falls}."
        if self.stragglers is not None:
            yield from self.stragglers.words()

    def _balance_words(self, what_ifs: Sequence[WhatIf]) -> Iterator[str]:
        """Yield the parts of the time because of which equal stages save nothing, despite an imbalance of stages."""
        part = timelines.TimePart.IMBALANCE
        waterfall, trials = self.waterfall, [each for each in what_ifs if each.change.shortened_part is part]
        if waterfall is None or waterfall.share(part) < LEAST_GAIN or all(each.gain >= LEAST_GAIN for each in trials):
            return
        parts = [*timelines.TimePart]
        others = [other for other in parts[parts.index(part) + 1 :] if waterfall.share(other) >= LEAST_GAIN]
        if others:
            imbalance, *names = (f"{each.words} ({waterfall.share(each):.1%})" for each in (part, *others))
            yield (
                f"Equal stages alone are not faster: {imbalance} is the time that they would save without "
                f"{enumerated(names)}."
            )

    def tables(self) -> Iterator[Table]:
        """Yield tables of time parts, time by IPU, critical path, and effects of changes; requested changes first."""
        effects = [*what_if_tables(self.what_ifs or (), self.pairs)]
        is_requested = any(what_if.change.kind == ON_REQUEST for what_if in self.what_ifs or ())
        if is_requested:
            yield from effects
        if self.waterfall is not None:
            yield waterfall_table(self.waterfall, self.timeline.info.clock_hz)
        yield self._idle_table()
        yield self._path_table()
        if self.sensitivities is not None and not self.sensitivities.unknown:
            yield self._sensitivity_table(self.sensitivities)
        if not is_requested:
            yield from effects
        if self.stragglers is not None:
            yield from self.stragglers.tables()

    def _idle_table(self) -> Table:
        """Return a row for every IPU, or for equal IPUs of several replicas."""
        info, idle = self.timeline.info, self.idle
        columns = [(look.name, cycles) for look, cycles in self.ipu_time if cycles.any()]
        replicas_of = defaultdict[tuple[int, tuple[str, ...]], list[int]](list)
        for ipu in info.ipu_rows:
            stages = ", ".join(info.stages[stage] for stage in info.stages_of_ipu.get(ipu, ())) or "none"
            cells = (stages, *(_share(int(cycles[ipu]), idle.window_cycles) for _, cycles in columns))
            replicas_of[ipu % info.shards, cells].append(ipu // info.shards)
        period = "the run" if self.execution is None else f"execution {self.execution}"
        whole = f"100% is {idle.window_cycles:,} cycles of {period}"
        names = ("stages", *(name for name, _ in columns))
        if len(replicas_of) == info.shards:
            equal = f", the same in replicas {enumerated_rows(range(info.replicas))}" * (info.replicas > 1)
            rows = [(str(ipu), *cells) for ipu, cells in replicas_of]
            return Table(f"Time of each IPU{equal}; {whole}", ("IPU", *names), tuple(rows))
        rows = [(str(ipu), enumerated_rows(replicas), *cells) for (ipu, cells), replicas in replicas_of.items()]
        return Table(f"Time of each IPU; {whole}", ("IPU in replica", "replicas", *names), tuple(rows))

    def _path_table(self) -> Table:
        info, total = self.timeline.info, self.path_cycles
        count = _MOST_ROWS if len(self.parts) > _MOST_ROWS + 1 else len(self.parts)
        rows = [
            (
                part.kind.name.lower().replace("_", " "),
                "-" if part.stage == timelines.NONE else info.stages[part.stage],
                f"{part.spans:,}",
                f"{part.cycles:,}",
                _share(part.cycles, total),
            )
            for part in self.parts[:count]
        ]
        last_parts = self.parts[count:]
        if last_parts:
            cycles = sum(part.cycles for part in last_parts)
            spans = sum(part.spans for part in last_parts)
            rows.append((f"{len(last_parts)} others", "", f"{spans:,}", f"{cycles:,}", _share(cycles, total)))
        title = f"Critical path, {total:,} cycles, {format_seconds(total / info.clock_hz)}"
        title += "; one of several paths of the same length"
        return Table(title, ("what", "stage", "spans", "cycles", "of the path"), tuple(rows))

    def _growth(self) -> dict[str, list[int | None]]:
        """Return the run's growth per additional cycle of each pass, by kind of pass and IPU.

        Among an IPU's stages, the largest growth counts. Unknown growth gives an empty mapping, as do stages of a
        scenario that differ from the Timeline's stages.
        """
        info, grows = self.timeline.info, {} if self.sensitivities is None else self.sensitivities.grows
        if any(len(cycles) != len(info.stages) for cycles in grows.values()):
            return {}
        stages_of = [info.stages_of_ipu.get(ipu, ()) for ipu in info.ipu_rows]
        return {
            kind.name.lower(): [_largest([cycles[stage] for stage in stages]) for stages in stages_of]
            for kind, cycles in grows.items()
        }

    def _sensitivity_table(self, sensitivities: runs.Sensitivities) -> Table:
        columns = [
            (kind, change, cycles[kind])
            for kind in sensitivities.grows
            for change, cycles in (("+1", sensitivities.grows), ("-1", sensitivities.falls))
        ]
        names = (f"{kind.name.lower().replace('_', ' ')} {change}" for kind, change, _ in columns)
        by_stage = zip(*(cycles for *_, cycles in columns), strict=True)
        rows = tuple(
            (stage, *("-" if cycles is None else f"{cycles:,}" for cycles in of_stage))
            for stage, of_stage in zip(self.timeline.info.stages, by_stage, strict=False)
        )
        title = (
            "Cycles by which the run grows if all passes of a stage and kind take one cycle more (+1), or shrinks if "
            "one cycle less (-1)"
        )
        return Table(title, ("stage", *names), rows)

    def data(self) -> dict[str, Any]:
        """Return everything as plain data for JSON, in a fixed order."""
        info, idle = self.timeline.info, self.idle
        return {
            "name": info.name,
            "schedule": info.schedule,
            "sync": info.sync.value,
            "execution": self.execution,
            "window_cycles": idle.window_cycles,
            "waterfall": None if self.waterfall is None else self.waterfall.to_dict(),
            "fits": None if self.memory is None else self.memory.fits,
            "help": list(self._help_words()),
            "ipus": self._ipu_cycles(),
            "critical_path": {
                "cycles": self.path_cycles,
                "parts": [
                    {
                        "kind": part.kind.name.lower(),
                        "stage": None if part.stage == timelines.NONE else info.stages[part.stage],
                        "spans": part.spans,
                        "cycles": part.cycles,
                    }
                    for part in self.parts
                ],
            },
            "sensitivities": None if self.sensitivities is None else self.sensitivities.to_dict(),
            "what_if": None if self.what_ifs is None else [what_if_dict(outcome) for outcome in self.what_ifs],
            "pairs": [
                {**what_if_dict(pair.joint), "gains_one_by_one": pair.sum, "adds_up": pair.adds_up}
                for pair in self.pairs
            ],
            "stragglers": None if self.stragglers is None else self.stragglers.to_dict(),
        }

    def _ipu_cycles(self) -> list[dict[str, Any]]:
        return [
            {
                "ipu": ipu,
                "cycles": {look.name.lower().replace(" ", "_"): int(cycles[ipu]) for look, cycles in self.ipu_time},
            }
            for ipu in self.timeline.info.ipu_rows
        ]


def explain(
    timeline: Timeline,
    job: Job | str,
    execution: int | None = None,
    waterfall: analysis.Waterfall | None = None,
    texts: Sequence[str] = (),
    syncs: Sequence[Sync] = (),
    *,
    straggling: bool = False,
    shares: Mapping[tuple[pipelines.Pass, int], Fraction] | None = None,
) -> Explanation:
    """Explain the time of a run.

    Args:
        timeline: the run.
        job: Job of the run, or the reason why the scenario is unknown.
        execution: number of the execution whose idle time is explained; None for the whole run.
        waterfall: parts of the run's time from the run's files, for an unknown scenario.
        texts: user's changes, in the format of :func:`~ipusim.app.explain.what_if.requested_changes`, instead
            of default changes.
        syncs: sync modes for other schedules, by default the run's mode.
        straggling: whether to compute the cost of stragglers.
        shares: recomputed fraction of a stage's passes, by kind and stage, for an unknown scenario.

    Raises OptionError for an execution missing in the run, for impossible changes, and for sync modes beside a user's
    changes, which name their own.
    """
    check_execution(timeline.info.executions, execution)
    if texts and syncs:
        raise OptionError("sync", "expected none with {}, whose changes name their own sync modes", "what")
    if isinstance(job, str) and (texts or straggling):
        raise OptionError("what" if texts else "stragglers", f"expected a run with a scenario: {job}")
    if not isinstance(job, str):
        waterfall, shares = runs.waterfall_of(job, timeline), runs.recomputed_shares(job)
    path = analysis.critical_path_of(timeline)
    idle, parts = analysis.idle_causes(timeline, execution, shares), analysis.path_parts(timeline, path)
    if isinstance(job, str):
        return Explanation(timeline, execution, waterfall, idle, path, parts, what_ifs=None, unknown_reason=job)
    outcomes, pairs = (
        requested_changes(job, timeline, texts) if texts else (what_if(job, timeline, syncs, waterfall), ())
    )
    return Explanation(
        timeline,
        execution,
        waterfall,
        idle,
        path,
        parts,
        outcomes,
        pairs=pairs,
        stragglers=stragglers(job, timeline) if straggling else None,
        disturbances=runs.disturbance_cost(job, timeline),
        memory=job.memory,
        sensitivities=runs.sensitivities(job, timeline.info.executions),
    )


def _largest(cycles: Sequence[int | None]) -> int | None:
    """Return the maximum; None without numbers, or with an unknown number."""
    known = [number for number in cycles if number is not None]
    return None if len(known) < len(cycles) else max(known, default=None)


def _share(part: int, whole: int) -> str:
    return f"{analysis.ratio(part, whole):.1%}"
