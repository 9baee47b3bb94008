"""The same work under several schedules, side by side in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ipusim.machine.simulate import Progress
from ipusim.notebook import html
from ipusim.notebook.asked import Asked, placed
from ipusim.notebook.frames import rows_frame
from ipusim.notebook.run import Run
from ipusim.render.figures import Chart, to_png
from ipusim.render.tables import comparison_table
from ipusim.study import compare as study
from ipusim.study.folder import ResultsFolder
from ipusim.study.report import COMPARISON_FILES, comparison_chart, comparison_files
from ipusim.study.tables import comparison_words, schedule_memory_table

if TYPE_CHECKING:
    import pandas as pd


class Comparison:
    """What each schedule takes for the same work; a notebook shows it as tables above the traces.

    Attributes:
        rows: a schedule's part each: its result, or why there is none.
        runs: by schedule, of those that ran; where one ran in several sync modes, by both: ``1f1b in lock-step``.
    """

    def __init__(self, rows: Sequence[study.Row]) -> None:
        """Show ``rows``, of which at least one ran."""
        self.rows = tuple(rows)
        several = len({row.schedule for row in rows}) < len(rows)
        self.runs = {row.name if several else row.schedule: Run(row.result) for row in rows if row.result is not None}

    def frame(self) -> pd.DataFrame:
        """Return a row for each schedule, refused ones too, whose numbers are missing; needs pandas.

        Columns: schedule, sync, makespan_cycles and makespan_s of one execution without its weight update,
        execution_cycles with it, weight_update_period_s, samples_per_s, bubble (idle / (IPUs x makespan)), utilisation,
        peak_bytes of the fullest IPU, fits (its memory) and refusal.
        """
        return rows_frame(list(map(_numbers, self.rows)))

    def figure(self) -> Chart:
        """Return the traces under each other on one time axis, as a matplotlib Figure."""
        return comparison_chart(self.rows)

    def save(self, folder: Path | str) -> Path:
        """Write the numbers and the figure as ``ipusim compare`` does, whole or not at all; return the folder.

        Raises OutputError for a folder that cannot be written, or that another run writes into.
        """
        with ResultsFolder(Path(folder), COMPARISON_FILES) as results:
            results.write(comparison_files(self.rows))
        return Path(folder)

    @cached_property
    def _png(self) -> bytes:
        return to_png(self.figure())

    def _repr_png_(self) -> bytes:
        return self._png

    def _repr_html_(self) -> str:
        times = comparison_table(
            [run.summary for run in self.runs.values()],
            [(row.schedule, row.sync) for row in self.rows if row.result is None],
            [row.name for row in self.rows if not row.fits],
        )
        memory = schedule_memory_table(self.rows)
        parts = [
            html.table(times),
            html.table(memory) if memory.rows else "",
            *map(html.paragraph, comparison_words(self.rows)),
            html.picture(self._png, times.title),
        ]
        return html.together(parts)

    def __repr__(self) -> str:
        """Name the schedules, and those that were refused."""
        words = [row.name if row.result else f"{row.name} (refused)" for row in self.rows]
        return f"<{type(self).__name__} of {', '.join(words)}>"


def compare(
    asked: Asked,
    schedules: Sequence[str] = study.GRAPHCORES,
    syncs: Sequence[str] = (),
    *,
    progress: Progress | None = None,
) -> Comparison:
    """Run what is asked for once under each of ``schedules``, on the same data, weights and device.

    That is in each of the sync modes ``syncs``; without any in that of the request, or else in the schedule's own.
    ``asked`` is what :func:`ipusim.run` takes. Raises ProgramError for a schedule or a mode that does not exist, and,
    as that does, what is wrong with a request that none of them can run.
    """
    chosen, modes = ([given] if isinstance(given, str) else given for given in (schedules, syncs))
    with placed(asked) as request:
        return Comparison(study.compare(request, chosen, modes, progress))


def _numbers(row: study.Row) -> dict[str, object]:
    found: dict[str, object] = {"schedule": row.schedule, "sync": row.sync.value}
    if row.result is not None:
        summary = row.result.summary
        found |= {
            "makespan_cycles": summary.makespan_cycles,
            "makespan_s": summary.seconds(summary.makespan_cycles),
            "execution_cycles": summary.execution_cycles,
            "weight_update_period_s": summary.throughput.weight_update_period_s,
            "samples_per_s": summary.throughput.samples_per_s,
            "bubble": summary.bubble.idle_fraction,
            "utilisation": summary.utilisation,
        }
    peak = row.memory.fullest.bytes if row.memory else None
    return found | {"peak_bytes": peak, "fits": row.fits, "refusal": row.refusal or None}
