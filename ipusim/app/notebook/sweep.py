"""Sweep options in a notebook, and show the results as table and chart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ipusim.api import Progress
from ipusim.app.notebook.checked import check_types
from ipusim.app.notebook.request import Changes, RequestLike, open_request
from ipusim.app.notebook.result import ResultView
from ipusim.app.render.figures import Chart
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.sweep import report
from ipusim.app.sweep import sweep as study
from ipusim.app.sweep.ceiling import SweepCeiling, ceilings
from ipusim.app.sweep.crew import Crew
from ipusim.app.sweep.measures import measure_of
from ipusim.app.sweep.outcome import Outcome
from ipusim.app.sweep.vary import axes_of

if TYPE_CHECKING:
    import pandas as pd


class Sweep(ResultView):
    """Results of a sweep.

    A notebook shows the best point, the rows and a chart of the measure.

    Args:
        result: sweep with its finished points.

    Attributes:
        points: values of each point by option path.
        outcomes: outcome of each point: figures, or the message of its error.
        measure: name of the measure that ranks and draws points.
        ceilings: limits of the throughput for large gradient_accumulation_count, by combination of the other options;
            empty unless this count varies.

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
        self.points: tuple[dict[str, Any], ...] = tuple(result.changes(point) for point, _ in result.finished_points)
        self.outcomes: tuple[Outcome, ...] = tuple(outcome for _, outcome in result.finished_points)
        self.ceilings: tuple[SweepCeiling, ...] = ceilings(result)
        super().__init__(report.SweepResult(result, self.ceilings, self._measure))

    @property
    def best(self) -> dict[str, Any] | None:
        """Values of the best fitting point; None without a fitting point, or if points have two sync modes."""
        bests = [*self.bests.values()]
        return bests[0] if len(report.modes_of(self._result)) == len(bests) == 1 else None

    @property
    def bests(self) -> dict[str, dict[str, Any]]:
        """Values of the best point by sync mode; points of different modes are not compared."""
        rows_of_mode = {
            mode: report.best_of(self._result, self._measure, mode) for mode in report.modes_of(self._result)
        }
        return {mode.value: self._result.changes(best[0][0]) for mode, best in rows_of_mode.items() if best}

    def frame(self) -> pd.DataFrame:
        """Return a row for every point, with the columns of ``sweep.csv``; needs pandas.

        Returns:
            A DataFrame, in which values of a refused point are missing:

            - a column for each varied option, under its dotted name;
            - sync: sync mode, if points have several;
            - makespan_cycles, makespan_s: duration of an execution without its weight update;
            - weight_update_period_s: seconds between weight updates;
            - samples_per_s: throughput of the whole run;
            - bubble, utilisation: shares of the IPUs' time, 1 together;
            - peak_bytes: memory peak of the fullest IPU;
            - fits: whether every IPU fits, such as ``fits`` and ``does not fit``;
            - loss, accuracy: mean loss of the last step, and accuracy on held-out samples, with ``losses``;
            - message: reason of a refusal.
        """
        return super().frame()

    @check_types
    def figure(self, measure: str | None = None, picture: Picture = DEFAULT) -> Chart:
        """Return the chart of a measure as a matplotlib Figure.

        Args:
            measure: name of the measure, such as ``bubble``; by default the measure of this sweep.
            picture: title and size.

        Returns:
            The Figure, which a notebook shows.

        Raises:
            OptionError: for an unknown measure, and for an unreadably small size.
        """
        chosen = self._measure if measure is None else measure_of(measure, losses=True)
        return report.chart_of(self._result, self.ceilings, chosen, picture)

    def __repr__(self) -> str:
        """Return the number of points and the varied options."""
        paths = ", ".join(axis.path for axis in self._result.axes)
        return f"<{type(self).__name__} of {len(self.points)} points of {paths}>"


@check_types
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
    """Return the results of a request at every point of varied options.

    Only time is simulated unless ``losses`` is set. A failing point is a row with its message.

    Args:
        source: request as in :func:`ipusim.run`.
        vary: paths of options, each with its values in a list or in a text such as ``8..256x2``.
        changes: changed options, as in :func:`ipusim.run`.
        zip: whether options vary together, first values first; otherwise they are crossed.
        measure: measure that ranks and draws points: ``throughput`` (samples/s), ``time`` or ``makespan`` (s),
            ``bubble`` or ``utilisation`` (share), ``memory`` (bytes), ``loss`` or ``accuracy``, which need ``losses``.
        losses: whether the stages compute; otherwise only time is simulated.
        workers: number of worker processes; by default one per core.
        backend: ``local``, or ``dask`` for a cluster.
        address: address of the cluster's scheduler.
        progress: callback with the number of finished points, and their total.

    Returns:
        The points with their outcomes.

    Raises:
        OptionError: for invalid axes, measures and worker pools.
        RequestError: for the first point's mistakes if no point runs; ScenarioError for a file.

    Example:
        >>> import ipusim
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> ipusim.sweep(options, {"pipeline.gradient_accumulation_count": "4..8x2"}, workers=1)
        <Sweep of 2 points of pipeline.gradient_accumulation_count>
    """
    measure_of(measure, losses=losses)
    with open_request(source, changes) as request:
        result = study.sweep(
            request,
            axes_of(vary),
            vary_together=zip,
            losses=losses,
            crew=Crew(workers, backend, address),
            progress=progress,
        )
    return Sweep(result, measure)
