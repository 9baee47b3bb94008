"""Several runs compared side by side in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipusim.api import Progress, Request, RequestError, assemble
from ipusim.app.compare import compare as study
from ipusim.app.compare.comparison import Comparison as Compared
from ipusim.app.compare.comparison_files import ComparisonResult, comparison_chart
from ipusim.app.compare.comparison_words import verdict
from ipusim.app.notebook.checked import checked
from ipusim.app.notebook.folder import RunFolder
from ipusim.app.notebook.request import Changes, RequestLike, placed
from ipusim.app.notebook.result import Found
from ipusim.app.notebook.run import Run
from ipusim.app.render.figures import Chart
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.run_folder.stored import read_run
from ipusim.base.errors import OptionError, ProgramError

if TYPE_CHECKING:
    import pandas as pd


class Comparison(Found):
    """Times of several runs, and the best of them; a notebook shows a verdict and a table above the traces.

    Attributes:
        rows: a row for each run, with its result or the reason for its refusal.
        runs: the runs that were just simulated, by the options that differ between them: ``1f1b``, or with several
            sync modes ``1f1b in lock-step``.

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
        """Show ``rows``, at least one of which ran."""
        self.rows = tuple(rows)
        self._result = Compared(self.rows)
        super().__init__(ComparisonResult(self._result))
        named = zip(self._result.keys, self.rows, strict=True)
        self.runs = {name: Run(row.result) for name, row in named if row.result is not None}

    def verdict(self) -> str:
        """Return sentences that name the best run, its advantage, and why a faster run is not the best."""
        return "\n".join(verdict(self._result))

    def frame(self) -> pd.DataFrame:
        """Return a row for each run, also for refused ones, which have no numbers; needs pandas.

        Columns: name (the options that differ), source, schedule, sync, selection_order, makespan_cycles and
        makespan_s of one execution without its weight update, execution_cycles with it, weight_update_period_s,
        samples_per_s, difference to the first of its sync mode as a part of it (of time, or of throughput where that
        decides), bubble (idle / (IPUs x makespan)), utilisation, peak_bytes of the fullest IPU, fits (``fits``, ``does
        not fit`` or another answer; None where it is refused), best and on_front of its sync mode, mean_loss of the
        last step and refusal.
        """
        return super().frame()

    @checked
    def figure(self, title: str = "", traces: Sequence[str] = (), picture: Picture = DEFAULT) -> Chart:
        """Return the time of each run as a bar of its parts, above traces, as a matplotlib Figure for a slide.

        Args:
            title: by default the name that all runs have in common.
            traces: names of runs; by default the best, the first and others, as many as fit.
            picture: its size, and its title where ``title`` is not given.

        Returns:
            The Figure, which a notebook shows.

        Raises:
            OptionError: for a size in which the slide cannot be read.
            ProgramError: for the name of no run.
            OutputError: for more traces than fit.
        """
        return comparison_chart(self._result, title, traces, picture)

    @checked
    def save(self, folder: Path | str, title: str = "", traces: Sequence[str] = ()) -> Path:
        """Write the numbers and the figure as ``ipusim compare`` does, whole or not at all.

        Args:
            folder: where to; or the one file to write, .json, .csv, .md, .parquet, .png, .svg or .pdf.
            title, traces: as of :meth:`figure`.

        Returns:
            The folder.

        Raises:
            ProgramError: as :meth:`figure`.
            OutputError: as that, and for a folder that cannot be written or that another run writes into.
        """
        return Found(ComparisonResult(self._result, title, traces)).save(folder)

    def __repr__(self) -> str:
        """Return the names of the runs, refused ones marked."""
        named = zip(self._result.titles, self.rows, strict=True)
        words = [name if row.times else f"{name} (refused)" for name, row in named]
        return f"<{type(self).__name__} of {', '.join(words)}>"


@checked
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
    """Return a Comparison of requests, each run under each of ``schedules``, ``orders`` and sync modes ``syncs``.

    Args:
        sources: what :func:`ipusim.run` takes, a run folder (its path, or what :func:`ipusim.load` returns),
            or a list of these.
        schedules: names of schedules; by default its own of each, and of one alone Graphcore's.
        syncs: sync modes, ``lock_step`` and ``point_to_point``; by default its own of each.
        orders: selection orders such as ``ZIGZAG``; by default its own of each.
        changes: other values for options, as :func:`ipusim.run` takes them; a run folder takes none.
        losses: whether the stages compute; else time alone is simulated.
        progress: called in each run with how many time-steps are done, and of how many.

    Returns:
        What the runs take, and which is best.

    Raises:
        OptionError: for changes that name an option twice, or beside a run folder.
        ProgramError: for a schedule, order or mode that does not exist or stands there twice, and for an empty list.
        FileError: for a folder that holds no run.
        RequestError: for what is wrong with requests of which none can run; ScenarioError where these are files.

    Example:
        >>> import ipusim
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> ipusim.compare(options, ["grouped", "sequential"])
        <Comparison of grouped in lock-step, sequential in lock-step>
    """
    every: Sequence[Any] = sources if isinstance(sources, list | tuple) else [sources]
    if not every:
        raise ProgramError("expected something to compare, got an empty list")
    chosen, modes, laid_out = ([choice] if isinstance(choice, str) else choice for choice in (schedules, syncs, orders))
    compared = [_compared(item, changes) for item in every]
    try:
        return Comparison(
            study.compare(compared, chosen, modes or (), laid_out or (), losses=losses, progress=progress)
        )
    except RequestError as error:
        requests = [item for item, entry in zip(every, compared, strict=True) if isinstance(entry.what, Request)]
        for item in requests:  # mistakes of a file are told with their place there
            with placed(item, changes) as request:
                assemble(request)
        with placed(requests[0], changes):
            raise error


def _compared(source: RequestLike | RunFolder, changes: Changes) -> study.Compared:
    if isinstance(source, RunFolder):
        stored, name = source.stored, str(source.folder)
    elif isinstance(source, str | Path) and Path(source).is_dir():
        stored, name = read_run(Path(source)), str(source)
    else:
        with placed(source, changes) as request:
            return study.Compared(request, str(source) if isinstance(source, str | Path) else request.name)
    if changes:
        raise OptionError("changes", f"expected scenarios to change, got the run folder {name}")
    return study.Compared(stored, name)
