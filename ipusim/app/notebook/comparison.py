"""Compare runs in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipusim.api import Progress, Request, RequestError, assemble
from ipusim.app.compare import compare as study
from ipusim.app.compare.comparison import Comparison as ComparisonOfRuns
from ipusim.app.compare.comparison_files import ComparisonResult, comparison_chart
from ipusim.app.compare.comparison_words import verdict
from ipusim.app.notebook.checked import check_types
from ipusim.app.notebook.folder import RunFolder
from ipusim.app.notebook.request import Changes, RequestLike, open_request
from ipusim.app.notebook.result import ResultView
from ipusim.app.notebook.run import Run
from ipusim.app.render.figures import Chart
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.run_folder.stored import read_run
from ipusim.base.errors import OptionError, ProgramError

if TYPE_CHECKING:
    import pandas as pd


class Comparison(ResultView):
    """Times of several runs, and the best of them; a notebook shows verdict, table and traces.

    Attributes:
        rows: result or refusal of every run.
        runs: simulated runs, by the options that differ between them: ``1f1b``, or with several sync modes ``1f1b in
            lock-step``.

    Example:
        >>> import ipusim
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> comparison = ipusim.compare(options, ["grouped", "sequential"])
        >>> list(comparison.runs)
        ['grouped', 'sequential']
        >>> comparison.runs["sequential"].summary.makespan_cycles
        24000
    """

    def __init__(self, rows: Sequence[study.Row]) -> None:
        """Show ``rows``; at least one row must have run."""
        self.rows = tuple(rows)
        self._result = ComparisonOfRuns(self.rows)
        super().__init__(ComparisonResult(self._result))
        pairs = zip(self._result.keys, self.rows, strict=True)
        self.runs = {name: Run(row.result) for name, row in pairs if row.result is not None}

    def verdict(self) -> str:
        """Return sentences on the best run, its lead, and faster runs that do not fit in memory."""
        return "\n".join(verdict(self._result))

    def frame(self) -> pd.DataFrame:
        """Return a row for every run, with missing figures for refused runs; needs pandas.

        Columns: name (the options that differ), source, schedule, sync, selection_order, makespan_cycles and makespan_s
        of one execution without its weight update, execution_cycles with it, weight_update_period_s, samples_per_s,
        difference (to the first run of the sync mode, relative: of time, or of throughput if runs do unequal work),
        bubble (idle / (IPUs x makespan)), utilisation, peak_bytes of the fullest IPU, fits (``fits``, ``does not fit``
        or another answer; None for refused runs), best and on_front (whether it is the best of its sync mode, and on
        its Pareto front of time and peak memory), mean_loss of the last step and refusal.
        """
        return super().frame()

    @check_types
    def figure(self, title: str = "", traces: Sequence[str] = (), picture: Picture = DEFAULT) -> Chart:
        """Return a slide as matplotlib Figure: bars of time parts for every run, above traces.

        Args:
            title: title of the slide; by default the shared name of the runs.
            traces: names of runs; by default the best, the first and others, as many as fit.
            picture: size of the slide, and its title if ``title`` is empty.

        Returns:
            The Figure, which a notebook shows.

        Raises:
            OptionError: for an unreadably small size.
            ProgramError: for an unknown run.
            OutputError: for more traces than fit.
        """
        return comparison_chart(self._result, title, traces, picture)

    @check_types
    def save(self, folder: Path | str, title: str = "", traces: Sequence[str] = ()) -> Path:
        """Write the files of ``ipusim compare``, whole or not at all.

        Args:
            folder: target folder; or a single file to write, .json, .csv, .md, .parquet, .png, .svg or .pdf.
            title, traces: as in :meth:`figure`.

        Returns:
            The folder.

        Raises:
            ProgramError: for an unknown run.
            OutputError: for more traces than fit, and for a folder that cannot be written or is in use by another run.
        """
        return ResultView(ComparisonResult(self._result, title, traces)).save(folder)

    def __repr__(self) -> str:
        """Return the names of the runs, with refused runs marked."""
        pairs = zip(self._result.titles, self.rows, strict=True)
        words = [name if row.times else f"{name} (refused)" for name, row in pairs]
        return f"<{type(self).__name__} of {', '.join(words)}>"


@check_types
def compare(
    sources: RequestLike | RunFolder | Sequence[RequestLike | RunFolder],
    schedules: str | Sequence[str] | None = None,
    syncs: str | Sequence[str] = (),
    orders: str | Sequence[str] = (),
    *,
    changes: Changes = None,
    losses: bool = False,
    progress: Progress | None = None,
) -> Comparison:
    """Return a Comparison of requests under every combination of ``schedules``, ``orders`` and ``syncs``.

    Args:
        sources: requests as in :func:`ipusim.run`, run folders (paths, or results of :func:`ipusim.load`), or a list of
            these.
        schedules: names of schedules; by default each request's schedule, and Graphcore's schedules for a single
            request.
        syncs: sync modes, ``lock_step`` and ``point_to_point``; by default each request's mode.
        orders: selection orders such as ``ZIGZAG``; by default each request's order.
        changes: changed options, as in :func:`ipusim.run`; not for run folders.
        losses: whether the stages compute; otherwise only time is simulated.
        progress: callback in each run with the number of finished time-steps, and their total.

    Returns:
        Times of the runs, and the best of them.

    Raises:
        OptionError: for changes that name an option twice, and for changes of a run folder.
        ProgramError: for an unknown or repeated schedule, order or mode, and for an empty list.
        FileError: for a folder without a run.
        RequestError: for mistakes in requests if none can run; ScenarioError for mistakes in files.

    Example:
        >>> import ipusim
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> ipusim.compare(options, ["grouped", "sequential"])
        <Comparison of grouped in lock-step, sequential in lock-step>
    """
    items: Sequence[Any] = sources if isinstance(sources, list | tuple) else [sources]
    if not items:
        raise ProgramError("expected at least one run to compare, got an empty list")
    names, modes, order_names = (
        [choice] if isinstance(choice, str) else choice for choice in (schedules, syncs, orders)
    )
    compared_items = [_item_of(item, changes) for item in items]
    try:
        return Comparison(
            study.compare(compared_items, names, modes or (), order_names or (), losses=losses, progress=progress)
        )
    except RequestError as error:
        requests = [
            item for item, entry in zip(items, compared_items, strict=True) if isinstance(entry.source, Request)
        ]
        for item in requests:  # reports a file's mistakes with their positions
            with open_request(item, changes) as request:
                assemble(request)
        with open_request(requests[0], changes):
            raise error


def _item_of(source: RequestLike | RunFolder, changes: Changes) -> study.ComparedItem:
    if isinstance(source, RunFolder):
        stored_run, name = source.stored, str(source.folder)
    elif isinstance(source, str | Path) and Path(source).is_dir():
        stored_run, name = read_run(Path(source)), str(source)
    else:
        with open_request(source, changes) as request:
            return study.ComparedItem(request, str(source) if isinstance(source, str | Path) else request.name)
    if changes:
        raise OptionError("changes", f"expected scenarios to change, got the run folder {name}")
    return study.ComparedItem(stored_run, name)
