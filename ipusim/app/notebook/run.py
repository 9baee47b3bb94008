"""Run a request in a notebook, and show its pictures and tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ipusim import api
from ipusim.api import Progress, Request, Summary, analysis, assemble, execute, runs
from ipusim.app.explain.explanation import explain
from ipusim.app.notebook.checked import check_types
from ipusim.app.notebook.explanation import Explanation
from ipusim.app.notebook.request import Changes, RequestLike, open_request
from ipusim.app.notebook.shown import RunView
from ipusim.app.render.figures import Chart
from ipusim.app.render.memory import memory_chart
from ipusim.app.render.picture import DEFAULT, Picture
from ipusim.app.render.window import ShownPart, part_window
from ipusim.app.run_folder.folder import ResultsFolder
from ipusim.app.run_folder.report import losses_csv, names_of, run_curves, run_files
from ipusim.base.errors import OutputError


class Run(RunView):
    """Run that has just ended.

    Attributes:
        result: Job of the run, and its results.

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
        """Request of this run; ``run.request.replace({"pipeline.schedule": "interleaved"})`` returns a variant."""
        return self.result.job.request

    @property
    def summary(self) -> Summary:
        """Figures of the run; ``summary.to_dict()`` is the content of ``summary.json``."""
        return self.result.summary

    @check_types
    def memory_figure(
        self,
        phase: str | None = None,
        execution: int | None = None,
        start: int | None = None,
        end: int | None = None,
        picture: Picture = DEFAULT,
    ) -> Chart:
        """Return the memory of IPUs over time as a matplotlib Figure.

        Args:
            phase, execution, start, end, picture: as in :meth:`figure`.

        Returns:
            The Figure, which a notebook shows; sizes are in bytes with their units.

        Raises:
            OptionError: for an unreadably small size.
            OutputError: for a phase that the execution lacks, for cycles outside the run, for both a phase and cycles,
                and for unknown memory of the stages.
            TimelineError: for an unknown execution.
        """
        if not self.result.describes_memory:
            raise OutputError("expected stages with known memory, got stages with only cycles")
        window = part_window(self.timeline, ShownPart(start, end, phase, execution))
        return memory_chart(self.timeline, self.result.memory, window, picture)

    @check_types
    def explain(self, execution: int | None = None) -> Explanation:
        """Explain the time of the run or an execution: idle causes, critical path, useful changes.

        Args:
            execution: number of the execution, from 0; by default the whole run.

        Returns:
            The explanation, which a notebook shows.

        Raises:
            OptionError: for an unknown execution.
        """
        return Explanation(explain(self.timeline, self.result.job, execution))

    def _curves(self) -> Sequence[analysis.MemoryCurve]:
        return run_curves(self.result)

    @check_types
    def save(self, folder: Path | str) -> Path:
        """Write every file of a run folder, whole or not at all.

        Args:
            folder: target folder.

        Returns:
            The folder, an argument of :func:`ipusim.load`.

        Raises:
            OutputError: for a folder that cannot be written, or is in use by another run.
        """
        names, outdated = names_of(self.result.job)
        with ResultsFolder(Path(folder), names, outdated=outdated) as results:
            results.write(run_files(self.result, part_window(self.timeline), Path(folder)))
        return Path(folder)


@check_types
def run(
    source: RequestLike,
    *,
    changes: Changes = None,
    progress: Progress | None = None,
    hooks: Sequence[runs.Hook] = (),
) -> Run:
    """Return the Run of a Request, a Job, options, or a scenario file.

    Exceptions of the request's Python functions are passed on.

    Args:
        source: Request, Job, options or path to run.
        changes: changed options, by dotted names or as nested mappings; keys that a mapping does not name stay:
            ``{"pipeline.repeat_count": 2}`` is ``{"pipeline": {"repeat_count": 2}}``. None unsets an option.
        progress: callback with the number of finished time-steps, and their total.
        hooks: callbacks at the beginning of each execution and at the end of the run; they take the session, which
            holds the weights and results so far.

    Returns:
        The run with Timeline, summary, losses and weights.

    Raises:
        OptionError: for changes that name an option twice.
        RequestError: with every problem of a Request or of options.
        ScenarioError: with every problem of a file, with line and column.
        PlanError: for a Plan that breaks a rule, possible with a user's schedule.
        MissingTensorError: if a pass needs a tensor that has not arrived.
        DeadlockError: if no process can continue.

    Example:
        >>> import ipusim
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> ipusim.run(options)  # doctest: +NORMALIZE_WHITESPACE
        <Run of pipeline, grouped in lock-step: 11.28 us per weight update, 354,667 samples/s,
        bubble 20.0% (idle / (IPUs x makespan))>
    """
    with open_request(source, changes) as request:
        return Run(execute(assemble(request), progress, hooks))
