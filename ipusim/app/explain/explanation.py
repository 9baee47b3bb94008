"""Why a run takes as long as it does: idle time by cause, the critical path, and what changes would give."""

from __future__ import annotations

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
from ipusim.app.explain.what_if import Together, requested_changes, what_if
from ipusim.app.explain.what_words import help_words, what_if_dict, what_if_tables
from ipusim.app.render.execution_trace import trace_with_path
from ipusim.app.render.figures import Chart
from ipusim.app.render.idle_causes import idle_chart
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.render.tables import Table
from ipusim.app.render.verdict import disturbance_words, waterfall_table, waterfall_words
from ipusim.app.render.window import part_window
from ipusim.app.run_folder.report import EXPLANATION_FILES
from ipusim.app.study.result import Result
from ipusim.base.errors import OptionError
from ipusim.base.looks import Look
from ipusim.base.units import format_seconds

#: Parts of the critical path, and changes, that a table shows.
_MOST_ROWS: Final = 12


@dataclass(frozen=True, eq=False)
class Explanation(Result):
    """Why a run takes as long as it does.

    Attributes:
        timeline: of the run.
        execution: the one that idle causes are of; None for the whole run.
        waterfall: the parts of the whole run's time; None where what ran is not known.
        idle: every idle interval of each IPU, with its cause.
        path: the critical path of the whole run.
        parts: that path by kind and stage.
        what_ifs: what each change would make of the run, the best first, or those that were asked for in their order;
            None where what ran is not known.
        unknown: why what ran is not known, as the end of a sentence; empty where it is.
        pairs: what every two of the changes give at once, of those that were asked for.
        stragglers: how much of the time goes to what is slower than its like; None unless requested.
        disturbances: the cost of the run's disturbances; None without any, and where what ran is not known.
        memory: peaks of the IPUs against their memory; None for a run whose scenario is not known.
        sensitivities: cycles by which the run grows or falls with each pass of a stage; None where what ran is not
            known.
        picture: title, size and theme of both charts.
    """

    timeline: Timeline
    execution: int | None
    waterfall: analysis.Waterfall | None
    idle: analysis.IdleCauses
    path: analysis.CriticalPath
    parts: tuple[analysis.PathPart, ...]
    what_ifs: tuple[WhatIf, ...] | None
    unknown: str = ""
    pairs: tuple[Together, ...] = ()
    stragglers: Stragglers | None = None
    disturbances: analysis.DisturbanceCost | None = None
    memory: analysis.Fit | None = None
    sensitivities: runs.Sensitivities | None = None
    picture: Picture = DEFAULT

    names = EXPLANATION_FILES

    def shown(self) -> Iterator[str | Table]:
        """Yield the verdict and the tables."""
        yield from self.words()
        yield ""
        yield from self.tables()

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each IPU: its cycles by activity and by cause of waiting."""
        return [{"ipu": row["ipu"], **row["cycles"]} for row in self._ipu_cycles()]

    def charts(self) -> dict[str, Callable[[], Chart]]:
        """Return a bar for each IPU, of its arithmetic and all other time, and the trace with the critical path.

        That is the trace of the execution, of a run's lost IPU, or of its first execution.
        """
        shown = partial(part_window, self.timeline, execution=self.execution)
        return {
            "idle_causes": lambda: idle_chart(self.timeline, self.ipu_time, self.picture),
            "critical_path": lambda: trace_with_path(self.timeline, self.path.rows, shown(), self.picture),
        }

    @property
    def path_cycles(self) -> int:
        """Length of the critical path, which is that of the run."""
        return sum(part.cycles for part in self.parts)

    @cached_property
    def ipu_time(self) -> tuple[tuple[Look, npt.NDArray[np.int64]], ...]:
        """The parts of each IPU's time in what idle causes are of, as :func:`~ipusim.analysis.causes.ipu_time` does."""
        whole = self.waterfall
        return analysis.ipu_time(self.idle, whole if whole is None or self.execution is None else whole.of_one())

    def words(self) -> Iterator[str]:
        """Yield the verdict: what the time goes into, what would help most, and what does not fit or is not known."""
        yield from self.where()
        yield from self._help()
        if self.memory is not None and self.memory.fits is not analysis.Fits.YES:
            yield self.memory.verdict()

    def where(self) -> Iterator[str]:
        """Yield sentences of the parts of the run's time and its disturbances, as the verdict on the run has them."""
        if self.waterfall is not None:
            yield f"Time goes into {waterfall_words(self.waterfall).rstrip('.')}."
        if self.disturbances is not None:
            clock_hz = self.timeline.info.clock_hz
            yield f"Disturbances: {disturbance_words(self.disturbances, lambda cycles: cycles / clock_hz)}."

    def _help(self) -> Iterator[str]:
        if self.what_ifs is None:
            yield f"What a change would give is not known: {self.unknown}."
            return
        yield from help_words(self.what_ifs)
        if self.sensitivities is not None and self.sensitivities.unknown:
            yield f"How sensitive the run is to a cycle of each pass is not known: {self.sensitivities.unknown}."
        if self.stragglers is not None:
            yield from self.stragglers.words()

    def tables(self) -> Iterator[Table]:
        """Yield the parts of the time, time by IPU, the critical path, and what changes would give."""
        if self.waterfall is not None:
            yield waterfall_table(self.waterfall, self.timeline.info.clock_hz)
        yield self._idle_table()
        yield self._path_table()
        if self.sensitivities is not None and not self.sensitivities.unknown:
            yield self._sensitivity_table(self.sensitivities)
        yield from what_if_tables(self.what_ifs or (), self.pairs)
        if self.stragglers is not None:
            yield from self.stragglers.tables()

    def _idle_table(self) -> Table:
        info, idle = self.timeline.info, self.idle
        shown = [(look.name, cycles) for look, cycles in self.ipu_time if cycles.any()]
        rows = tuple(
            (
                str(ipu),
                ", ".join(info.stages[stage] for stage in info.stages_of_ipu.get(ipu, ())) or "none",
                *(_share(int(cycles[ipu]), idle.window_cycles) for _, cycles in shown),
            )
            for ipu in info.ipu_rows
        )
        of = "the run" if self.execution is None else f"execution {self.execution}"
        title = f"Time of each IPU, of {idle.window_cycles:,} cycles of {of}"
        return Table(title, ("IPU", "stages", *(name for name, _ in shown)), rows)

    def _path_table(self) -> Table:
        info, total = self.timeline.info, self.path_cycles
        shown = _MOST_ROWS if len(self.parts) > _MOST_ROWS + 1 else len(self.parts)
        rows = [
            (
                part.kind.name.lower().replace("_", " "),
                "-" if part.stage == timelines.NONE else info.stages[part.stage],
                f"{part.spans:,}",
                f"{part.cycles:,}",
                _share(part.cycles, total),
            )
            for part in self.parts[:shown]
        ]
        rest = self.parts[shown:]
        if rest:
            cycles = sum(part.cycles for part in rest)
            spans = sum(part.spans for part in rest)
            rows.append((f"{len(rest)} others", "", f"{spans:,}", f"{cycles:,}", _share(cycles, total)))
        title = f"Critical path, {total:,} cycles, {format_seconds(total / info.clock_hz)}"
        title += "; one of several where paths tie"
        return Table(title, ("what", "stage", "spans", "cycles", "of the path"), tuple(rows))

    def _sensitivity_table(self, of: runs.Sensitivities) -> Table:
        columns = [
            (kind, change, cycles[kind]) for kind in of.grows for change, cycles in (("+1", of.grows), ("-1", of.falls))
        ]
        names = (f"{kind.name.lower().replace('_', ' ')} {change}" for kind, change, _ in columns)
        by_stage = zip(*(cycles for *_, cycles in columns), strict=True)
        rows = tuple(
            (stage, *("-" if cycles is None else f"{cycles:,}" for cycles in of_stage))
            for stage, of_stage in zip(self.timeline.info.stages, by_stage, strict=False)
        )
        if any(of.copies):
            grows, falls = ("-" if cycles is None else f"{cycles:,}" for cycles in of.copies)
            rows += (("each copy between IPUs", grows, falls, *("" for _ in columns[2:])),)
        title = "Cycles by which the run grows (+1) or falls (-1) as each pass takes a cycle more or less"
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
            "help": list(self._help()),
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
                {**what_if_dict(pair.both), "gains_one_by_one": pair.sum, "adds_up": pair.adds_up}
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
    said: analysis.Waterfall | None = None,
    texts: Sequence[str] = (),
    syncs: Sequence[Sync] = (),
    *,
    straggling: bool = False,
    shares: Mapping[tuple[pipelines.Pass, int], Fraction] | None = None,
) -> Explanation:
    """Return why a run takes as long as it does.

    Args:
        timeline: the run.
        job: what ran, or the reason why that is not known.
        execution: whose idle time is explained, by default that of the whole run.
        said: the parts of the run's time as the run has written them, where what ran is not known.
        texts: changes of the user's own, as :func:`~ipusim.app.explain.what_if.requested_changes` takes them, in place
            of those that are tried by themselves.
        syncs: the modes that other schedules are tried in, by default that of the run.
        straggling: whether to say how much of the time goes to stragglers.
        shares: which part of a stage's passes of a kind computes activations again, where what ran is not known.

    Raises TimelineError for an execution that the run has not, OptionError for changes that cannot be.
    """
    path = analysis.critical_path_of(timeline)
    if isinstance(job, str) and (texts or straggling):
        raise OptionError("what" if texts else "stragglers", f"expected a run whose scenario is known: {job}")
    outcomes: tuple[WhatIf, ...] | None = None
    pairs: tuple[Together, ...] = ()
    if texts and not isinstance(job, str):
        outcomes, pairs = requested_changes(job, timeline, texts)
    elif not isinstance(job, str):
        outcomes = what_if(job, timeline, syncs)
    return Explanation(
        timeline=timeline,
        execution=execution,
        waterfall=said if isinstance(job, str) else runs.waterfall_of(job, timeline),
        idle=analysis.idle_causes(timeline, execution, shares if isinstance(job, str) else runs.recomputed_shares(job)),
        path=path,
        parts=analysis.path_parts(timeline, path),
        what_ifs=outcomes,
        unknown=job if isinstance(job, str) else "",
        pairs=pairs,
        stragglers=stragglers(job, timeline) if straggling and not isinstance(job, str) else None,
        disturbances=None if isinstance(job, str) else runs.disturbance_cost(job, timeline),
        memory=None if isinstance(job, str) else job.memory,
        sensitivities=None if isinstance(job, str) else runs.sensitivities(job, timeline.info.executions),
    )


def _share(part: int, whole: int) -> str:
    return f"{analysis.ratio(part, whole):.1%}"
