"""A run in a notebook: from a request to pictures and tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ipusim import api
from ipusim.api import Progress, Request, Summary, analysis, assemble, execute, runs
from ipusim.app.explain.explanation import explain
from ipusim.app.notebook.checked import checked
from ipusim.app.notebook.explanation import Explanation
from ipusim.app.notebook.request import Changes, RequestLike, placed
from ipusim.app.notebook.shown import Shown
from ipusim.app.render.figures import Chart
from ipusim.app.render.memory import memory_chart
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.render.window import part_window
from ipusim.app.run_folder.folder import ResultsFolder
from ipusim.app.run_folder.report import losses_csv, names_of, run_curves, run_files
from ipusim.base.errors import OutputError


class Run(Shown):
    """A run that has just ended.

    Attributes:
        result: the Job that ran, and everything that came of it.

    Example:
        >>> import ipusim
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> ran = ipusim.run(options)
        >>> ran.summary.makespan_cycles, ran.summary.bubble.idle_fraction
        (15000, 0.2)
        >>> len(ran.timeline.start)
        22
    """

    def __init__(self, result: api.Run) -> None:
        """Show ``result``."""
        learning = result.learning
        losses = losses_csv(learning) if learning is not None and learning.losses else None
        super().__init__(result.timeline, result.summary, result.summary.to_dict(), losses)
        self.result = result
        if learning is not None:
            self.weights, self.outputs = learning.weights, learning.outputs

    @property
    def request(self) -> Request:
        """The Request of this run; ``run.request.replace({"pipeline.schedule": "interleaved"})`` returns a variant."""
        return self.result.job.request

    @property
    def summary(self) -> Summary:
        """Every number about the run; ``summary.to_dict()`` is what ``summary.json`` says."""
        return self.result.summary

    @checked
    def memory_figure(
        self,
        phase: str | None = None,
        execution: int | None = None,
        start: int | None = None,
        end: int | None = None,
        picture: Picture = DEFAULT,
    ) -> Chart:
        """Return the memory of each IPU over time as a matplotlib Figure, of the part that :meth:`figure` shows.

        Args:
            phase, execution, start, end, picture: as of :meth:`figure`.

        Returns:
            The Figure, which a notebook shows; sizes are in bytes with their units.

        Raises:
            OptionError: as :meth:`figure`.
            OutputError: as :meth:`figure`, and where the stages do not say what they hold.
            TimelineError: as :meth:`figure`.
        """
        if not self.result.describes_memory:
            raise OutputError("expected stages that say what they hold, got stages known by their cycles alone")
        shown = part_window(self.timeline, start, end, phase, execution)
        return memory_chart(self.timeline, self.result.memory, shown, picture)

    @checked
    def explain(self, execution: int | None = None) -> Explanation:
        """Say why the run, or one execution, takes as long as it does: idle causes, critical path, what would help.

        Args:
            execution: its number, from 0; by default the whole run.

        Returns:
            The explanation, which a notebook shows.

        Raises:
            TimelineError: for an execution that the run has not.
        """
        return Explanation(explain(self.timeline, self.result.job, execution))

    def _curves(self) -> Sequence[analysis.MemoryCurve]:
        return run_curves(self.result)

    @checked
    def save(self, folder: Path | str) -> Path:
        """Write every file of a run folder, whole or not at all.

        Args:
            folder: where to.

        Returns:
            The folder, which :func:`ipusim.load` reads.

        Raises:
            OutputError: for a folder that cannot be written, or that another run writes into.
        """
        names, outdated = names_of(self.result.job)
        with ResultsFolder(Path(folder), names, outdated=outdated) as results:
            results.write(run_files(self.result, part_window(self.timeline), Path(folder)))
        return Path(folder)


@checked
def run(
    source: RequestLike,
    *,
    changes: Changes = None,
    progress: Progress | None = None,
    hooks: Sequence[runs.Hook] = (),
) -> Run:
    """Return the Run of a Request or Job, of options by a scenario's own keys, or of the scenario at a path.

    What the request's own Python functions raise is passed on.

    Args:
        source: what to run.
        changes: other values for options, by dotted names or as nested mappings, which keep the keys that they do not
            name: ``{"pipeline.repeat_count": 2}`` is ``{"pipeline": {"repeat_count": 2}}``; None unsets an option.
        progress: called with how many time-steps are done, and of how many.
        hooks: called at the beginning of each execution and at the end of the run, with the session.

    Returns:
        The run: its Timeline, its summary, its losses and weights.

    Raises:
        OptionError: for changes that name an option twice.
        RequestError: with every problem of a Request or of options.
        ScenarioError: with those of a file, each with its line and column.
        PlanError: for a Plan that breaks a rule, as one of a user's own schedule can.
        MissingTensorError, DeadlockError: as :func:`ipusim.api.execute` raises them.

    Example:
        >>> import ipusim
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> ipusim.run(options)
        <Run of pipeline: 11.28 us per weight update, 354,667 samples/s, bubble 20.0% (idle / (IPUs x makespan))>
    """
    with placed(source, changes) as request:
        return Run(execute(assemble(request), progress, hooks))
