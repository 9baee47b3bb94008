"""Define the Job: an assembled request, checked and ready to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ipusim.analysis.fit import Fit
from ipusim.hardware.system import System
from ipusim.model.workload import Workload
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing.costs import Costs
from ipusim.pricing.exchanges import HostExchange
from ipusim.runs.content import HeldOut
from ipusim.runs.request.request import Request
from ipusim.schedules.schedule import Schedule

#: Number, or array of numbers, of a run.
_Figure = TypeVar("_Figure", int, npt.NDArray[np.int64])


@dataclass(frozen=True, eq=False)
class Job:
    """Program with its system, Plan, costs, memory and workload.

    Attributes:
        request: request of the Job.
        system: device.
        program: pipeline.
        plan: legal order of the pipeline's operations; holds fewer micro-batches than the program if a shorter run may
            stand for the whole, repeating run.
        costs: costs of all operations on the device.
        schedule: schedule of the plan.
        find_memory: function that returns the memory.
        steps: session runs, each of ``program.repeat_count`` executions.
        notes: warnings about options without an effect, with Graphcore's text if Graphcore has this warning.
        workload: function that returns a replica's arithmetic by number; None in timing-only runs.
        held_out: evaluation; None without held-out samples or a loss.
        constant_loss: training loss of the best predictor that ignores its input; None in timing-only runs, or for
            a loss without such a predictor.
        between: exchanges of hosts before an execution, by the execution's number.
        late: cycles that this host waits in each execution until the last host is ready to sum; empty if all hosts are
            ready at once, or exchange their times during the run.
        in_part: whether a shorter run may stand for the whole run if the timing repeats. If so, nothing has
            checked whether the whole run fits in this computer's memory.
        with_counts: function of the number of micro-batches in an execution and the repeat count. It returns the Job
            with these counts and all micro-batches in its Plan, and raises RequestError for impossible counts.

    Example:
        >>> from ipusim.api import Request, assemble
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> job = assemble(Request.from_dict(options))
        >>> job.plan, job.executions
        (<Plan grouped in lock-step: 16 passes, 8 time-steps>, 1)
    """

    request: Request
    system: System
    program: PipelineProgram
    plan: Plan
    costs: Costs
    schedule: Schedule
    find_memory: Callable[[], Fit]
    steps: int
    notes: tuple[str, ...] = ()
    workload: Callable[[int], Workload] | None = None
    held_out: HeldOut | None = None
    constant_loss: float | None = None
    between: Mapping[int, tuple[HostExchange, ...]] = field(default_factory=dict)
    late: tuple[int, ...] = ()
    in_part: bool = False
    with_counts: Callable[[int, int], Job] | None = None

    @property
    def of(self) -> Callable[[int, int], Job] | None:
        """Former name of ``with_counts``, kept for one release."""
        return self.with_counts

    @property
    def name(self) -> str:
        """Name of the Job, and of its results folder."""
        return self.program.name

    @property
    def executions(self) -> int:
        """Executions of the pipeline in the whole run."""
        return self.steps * self.program.repeat_count

    @cached_property
    def memory(self) -> Fit:
        """Peaks of the IPUs with their limits."""
        return self.find_memory()

    @cached_property
    def whole(self) -> Job:
        """Job with all micro-batches laid out; raises RequestError if their number is too large."""
        if not self.in_part:
            return self
        return self._with_count(self.program.shape.micro_batches)

    def _with_count(self, micro_batches: int) -> Job:
        assert self.with_counts is not None
        return self.with_counts(micro_batches, self.program.repeat_count)

    def of_whole(
        self, figure: Callable[[Job], _Figure], count: int | None = None, period: int | None = None
    ) -> _Figure:
        """Return figures of the whole Job, extrapolated linearly over periods.

        Args:
            figure: function that returns the figure of a fully laid out Job.
            count: number of micro-batches from which the figure grows linearly; by default the Plan's number.
            period: micro-batches of a period, after which the same passes repeat; by default a period of the schedule.
                If the Order has no time-steps, the repeated passes may have other time-steps.

        Returns:
            Figure for all micro-batches of the program, from the figures of ``count`` and of a period more.
        """
        laid_out_count, whole_count = self.plan.shape.micro_batches, self.program.shape.micro_batches
        count = laid_out_count if count is None else count
        period = self.schedule.step(self.plan.shape) if period is None else period

        def job_of(micro_batches: int) -> Job:
            if micro_batches == laid_out_count:
                return self
            return self.whole if micro_batches == whole_count else self._with_count(micro_batches)

        base = figure(job_of(count))
        if count == whole_count:
            return base
        growth, (periods, remainder) = figure(job_of(count + period)) - base, divmod(whole_count - count, period)
        # Multiply by periods first: products of cycles and all micro-batches may exceed 64 bits.
        total: _Figure = base + growth * periods + growth * remainder // period
        return total

    @property
    def describes_memory(self) -> bool:
        """Whether any stage states its memory; a stage known only by its cycles may leave its memory out."""
        return self.program.describes_memory
