"""A Run: an executed Job with its results."""

from __future__ import annotations

from dataclasses import dataclass

from ipusim.analysis.fit import Fit
from ipusim.analysis.learning import Learning
from ipusim.analysis.summary import Summary
from ipusim.runs.job import Job
from ipusim.timeline.timeline import Timeline


@dataclass(frozen=True, eq=False)
class Run:
    """An executed Job: the Timeline, the losses that the training really gave, and what they sum up to.

    Attributes:
        job: what was run.
        timeline: what happened, in cycles of the tile clock.
        summary: every number about the run.
        learning: losses, outputs and weights; None where only time is simulated.
        remarks: on how it was simulated, which its results do not depend on.

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
        """The peaks of the IPUs against their memory."""
        return self.job.memory

    @property
    def describes_memory(self) -> bool:
        """Whether any stage says what it holds; stages known by their cycles alone may not."""
        return self.job.describes_memory
