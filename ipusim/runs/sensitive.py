"""Measure how a run's length changes if each pass of a stage takes a cycle more, or a cycle less."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ipusim.base.errors import NotExactError
from ipusim.pipeline.ops import Pass
from ipusim.retiming.retiming import Retiming
from ipusim.runs.job import Job
from ipusim.runs.other_passes import are_quick, quick_count


@dataclass(frozen=True)
class Sensitivities:
    """Changes of a run's length; the run is timed again for each change.

    Counting a stage's passes on a critical path would give only a bound: several paths may be equally long.

    Attributes:
        grows: by kind of pass, a number per stage: growth of the run in cycles if each of the stage's passes takes a
            cycle more; None if the longer run cannot be computed exactly.
        falls: the same, for the reduction of the run if each pass takes a cycle less.
        copies: growth and reduction of the run in cycles if each copy between IPUs takes a cycle more or less. Copies
            are merged copies in lock-step, and sent tensors in point-to-point.
        unknown: reason why sensitivities are unknown, as the end of a sentence; empty if they are known.
    """

    grows: Mapping[Pass, tuple[int | None, ...]] = field(default_factory=dict)
    falls: Mapping[Pass, tuple[int | None, ...]] = field(default_factory=dict)
    copies: tuple[int | None, int | None] = (None, None)
    unknown: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the sensitivities as plain data for JSON, by kind of pass and stage."""
        directions = {"grows": self.grows, "falls": self.falls}
        by_kind = {
            name: {kind.name.lower(): list(values) for kind, values in kinds.items()}
            for name, kinds in directions.items()
        }
        copies = dict(zip(directions, self.copies, strict=True))
        return {**by_kind, "copies": copies, "unknown": self.unknown or None}


def sensitivities(job: Job, executions: int) -> Sensitivities:
    """Return the sensitivity of a run to the cycles of each stage's passes.

    Args:
        job: Job of the run.
        executions: number of pipeline executions.

    Returns:
        Cycles over all executions together, or the reason for unknown sensitivities.
    """
    kinds = sorted({Pass(kind) for kind in job.plan.kind.tolist()})
    stages = job.plan.shape.stages
    sets = 1 + 2 * len(kinds) * stages
    if not are_quick(job, executions, sets):
        count = quick_count(job, executions, sets)
        shorter = f"; up to gradient_accumulation_count {count} it is known" if count else ""
        return Sensitivities(unknown=f"the run has too many passes{shorter}")
    whole_job = job.whole
    try:
        retiming = Retiming.from_plan(
            whole_job.plan,
            whole_job.program,
            whole_job.system,
            costs=whole_job.costs,
            executions=executions,
            between=whole_job.between,
        )
        growth = retiming.growth(kinds)
    except NotExactError as error:
        return Sensitivities(unknown=f"it has {error}")
    passes = growth.passes.astype(object)
    passes[~growth.passes_exact] = None
    grows, falls = ({kind: tuple(row[kind]) for kind in kinds} for row in passes.tolist())
    copies = [
        int(cycles) if is_exact else None for cycles, is_exact in zip(growth.copies, growth.copies_exact, strict=True)
    ]
    return Sensitivities(grows, falls, (copies[0], copies[1]))
