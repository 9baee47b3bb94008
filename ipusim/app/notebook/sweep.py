"""The runs of a request at every point of varied options, as a table and a chart in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ipusim.api import Progress
from ipusim.app.notebook.checked import checked
from ipusim.app.notebook.request import Changes, RequestLike, placed
from ipusim.app.notebook.result import Found
from ipusim.app.render.figures import Chart
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.sweep import report
from ipusim.app.sweep import sweep as study
from ipusim.app.sweep.ceiling import Ceiling, ceilings
from ipusim.app.sweep.crew import Crew
from ipusim.app.sweep.measures import measure_of
from ipusim.app.sweep.outcome import Outcome
from ipusim.app.sweep.vary import axes_of

if TYPE_CHECKING:
    import pandas as pd


class Sweep(Found):
    """The results of a sweep; a notebook shows the best point, the rows and a chart of the measure.

    Args:
        result: the sweep, with every point that ran.

    Attributes:
        points: the values of each point by the paths of their options.
        outcomes: the outcome of each point: its numbers, or the message of its error.
        measure: the name of the measure that ranks points and is drawn.
        ceilings: of a sweep of gradient_accumulation_count, the limit of the throughput for large counts, for each
            combination of the other options.

    Example:
        >>> import ipusim
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> swept = ipusim.sweep(options, {"pipeline.gradient_accumulation_count": [4, 8]}, workers=1)
        >>> swept.best
        {'pipeline.gradient_accumulation_count': 8}
    """

    def __init__(self, result: study.Sweep, measure: str) -> None:
        """Show a finished sweep."""
        self._result = result
        self._measure = measure_of(measure, losses=True)
        self.measure = measure
        self.points: tuple[dict[str, Any], ...] = tuple(result.changes(point) for point, _ in result.finished)
        self.outcomes: tuple[Outcome, ...] = tuple(outcome for _, outcome in result.finished)
        self.ceilings: tuple[Ceiling, ...] = ceilings(result)
        super().__init__(report.SweepResult(result, self.ceilings, self._measure))

    @property
    def best(self) -> dict[str, Any] | None:
        """The values of the best point that fits in memory; None if no point fits, and for points of two sync modes."""
        found = [*self.bests.values()]
        return found[0] if len(report.modes_of(self._result)) == len(found) == 1 else None

    @property
    def bests(self) -> dict[str, dict[str, Any]]:
        """The values of the best point of each sync mode, by mode; points of two modes are not compared."""
        ranked = {mode: report.best_of(self._result, self._measure, mode) for mode in report.modes_of(self._result)}
        return {mode.value: self._result.changes(best[0][0]) for mode, best in ranked.items() if best}

    def frame(self) -> pd.DataFrame:
        """Return a row for each point, with the columns of ``sweep.csv``; needs pandas.

        Returns:
            A DataFrame, in which values of a refused point are missing:

            - a column for each varied option, under its dotted name;
            - sync: sync mode, where points have several;
            - makespan_cycles, makespan_s: duration of an execution without its weight update;
            - weight_update_period_s: seconds from one weight update to the next;
            - samples_per_s: throughput of the whole run;
            - bubble, utilisation: shares of the IPUs' time, 1 together;
            - peak_bytes: most memory that an IPU holds;
            - fits: answer to whether every IPU holds what it needs, such as ``fits`` and ``does not fit``;
            - loss, accuracy: mean loss of the last step, and accuracy on held-out samples, with ``losses``;
            - message: reason of a refusal.
        """
        return super().frame()

    @checked
    def figure(self, measure: str | None = None, picture: Picture = DEFAULT) -> Chart:
        """Return the chart of a measure as a matplotlib Figure.

        Args:
            measure: its name, such as ``bubble``; by default this sweep's.
            picture: title and size.

        Returns:
            The Figure, which a notebook shows.

        Raises:
            OptionError: for an unknown measure, and for a size in which the chart cannot be read.
        """
        chosen = self._measure if measure is None else measure_of(measure, losses=True)
        return report.chart_of(self._result, self.ceilings, chosen, picture)

    def __repr__(self) -> str:
        """Name what was varied."""
        varied = ", ".join(axis.path for axis in self._result.axes)
        return f"<{type(self).__name__} of {len(self.points)} points of {varied}>"


@checked
def sweep(
    source: RequestLike,
    vary: Mapping[str, str | Iterable[Any]],
    *,
    changes: Changes = None,
    zip: bool = False,
    measure: str = "throughput",
    losses: bool = False,
    workers: int | None = None,
    backend: str = "local",
    address: str | None = None,
    progress: Progress | None = None,
) -> Sweep:
    """Return the results of a request at every point of varied options, for time alone unless ``losses`` is set.

    A point that does not run is a row with its message.

    Args:
        source: what :func:`ipusim.run` takes.
        vary: paths of options, each with its values in a list or in a text such as ``8..256x2``.
        changes: other values for options, as :func:`ipusim.run` takes them.
        zip: whether the values go side by side, the first of each, the second of each; else all are crossed.
        measure: what points are judged and drawn by: ``throughput`` (samples/s), ``time`` or ``makespan`` (s),
            ``bubble`` or ``utilisation`` (share), ``memory`` (bytes), ``loss`` or ``accuracy``, which need ``losses``.
        losses: whether the stages compute; else time alone is simulated.
        workers: processes that run points; by default as many as there are cores.
        backend: ``local``, or ``dask`` for a cluster.
        address: of the scheduler of that cluster.
        progress: called with how many points are done, and of how many.

    Returns:
        The points and what each came to.

    Raises:
        OptionError: for what cannot be varied, measured or run so.
        RequestError: where no point runs, for what is wrong with the first one; ScenarioError where that is a file.

    Example:
        >>> import ipusim
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> ipusim.sweep(options, {"pipeline.gradient_accumulation_count": "4..8x2"}, workers=1)
        <Sweep of 2 points of pipeline.gradient_accumulation_count>
    """
    measure_of(measure, losses=losses)
    with placed(source, changes) as request:
        result = study.sweep(
            request,
            axes_of(vary),
            together=zip,
            losses=losses,
            crew=Crew(workers, backend, address),
            progress=progress,
        )
    return Sweep(result, measure)
