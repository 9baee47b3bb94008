"""Define the Run: an executed Job with its results."""

from __future__ import annotations

from dataclasses import dataclass

from ipusim.analysis.fit import Fit
from ipusim.analysis.learning import Learning
from ipusim.analysis.summary import Summary
from ipusim.runs.job import Job
from ipusim.timeline.timeline import Timeline


@dataclass(frozen=True, eq=False)
class Run:
    """Executed Job with its Timeline, summary and training results.

    Attributes:
        job: executed Job.
        timeline: spans of the run (intervals such as passes and copies), in cycles of the tile clock.
        summary: all figures of the run.
        learning: losses, outputs and weights; None in timing-only runs.
        remarks: remarks on the simulation that do not affect its results.

    Example:
        >>> from ipusim.api import Request, assemble, execute
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> run = execute(assemble(Request.from_dict(options)))
        >>> run.summary.time_steps, len(run.timeline), run.learning
        (8, 22, None)
    """

    job: Job
    timeline: Timeline
    summary: Summary
    learning: Learning | None
    remarks: tuple[str, ...] = ()

    @property
    def memory(self) -> Fit:
        """Memory peaks of the IPUs with their limits."""
        return self.job.memory

    @property
    def describes_memory(self) -> bool:
        """Whether any stage states its memory; a stage known only by its cycles may leave its memory out."""
        return self.job.describes_memory
