"""A Run: a Job that was executed, and everything that came of it."""

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
        remarks: on how it was simulated, which its results do not depend on.
    """

    job: Job
    timeline: Timeline
    summary: Summary
    learning: Learning | None
    remarks: tuple[str, ...] = ()

    @property
    def memory(self) -> Fit:
        """What the IPUs hold, against what they have."""
        return self.job.memory

    @property
    def describes_memory(self) -> bool:
        """Whether any stage says what it holds; stages known by their cycles alone may not."""
        return self.job.describes_memory
