"""A Job: all that a request stands for, laid out, checked and ready to run."""

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

_Figure = TypeVar("_Figure", int, npt.NDArray[np.int64])


@dataclass(frozen=True, eq=False)
class Job:
    """A program with its system, Plan, costs, memory and workload: all that a run needs.

    Attributes:
        request: what was asked for.
        system: the device.
        program: the pipeline.
        plan: the order of its operations, which keeps every rule; of fewer micro-batches than the program has where
            a shorter run may stand for the whole one, which repeats itself.
        costs: what everything of it takes on the device.
        schedule: what laid the order out.
        memory: what the IPUs hold, against what they have.
        steps: session runs, each of ``program.repeat_count`` executions.
        notes: warnings, in Graphcore's words, about options without an effect.
        workload: the arithmetic of a replica, by its number; None when only time is simulated.
        held_out: evaluation; None without held-out samples or a loss.
        constant_loss: loss of the best predictor that ignores its input, on the training data;
            None without arithmetic, or when the loss does not say.
        between: what hosts do together before an execution, by its number: between session runs of a program.
        late: of each execution, for how many cycles this host waits until the last of several is ready to sum up;
            nothing where all are at once, or where they tell each other.
        in_part: whether a shorter run may stand for the whole one, which then has not been held against the memory of
            this computer.
        of: the same with another number of micro-batches in an execution, all of them laid out, and another repeat
            count; raises RequestError where that cannot be.

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
    memory: Fit
    steps: int
    notes: tuple[str, ...] = ()
    workload: Callable[[int], Workload] | None = None
    held_out: HeldOut | None = None
    constant_loss: float | None = None
    between: Mapping[int, tuple[HostExchange, ...]] = field(default_factory=dict)
    late: tuple[int, ...] = ()
    in_part: bool = False
    of: Callable[[int, int], Job] | None = None

    @property
    def name(self) -> str:
        """Names the run's folder."""
        return self.program.name

    @property
    def executions(self) -> int:
        """Executions of the pipeline in the whole run."""
        return self.steps * self.program.repeat_count

    @cached_property
    def whole(self) -> Job:
        """The Job with all of its micro-batches laid out; raises RequestError where they are too many."""
        if not self.in_part:
            return self
        return self._of(self.program.shape.micro_batches)

    def _of(self, micro_batches: int) -> Job:
        assert self.of is not None
        return self.of(micro_batches, self.program.repeat_count)

    def of_whole(
        self, figure: Callable[[Job], _Figure], count: int | None = None, period: int | None = None
    ) -> _Figure:
        """Return a figure, or an array of some, of the whole Job that grows by as much with each period.

        Args:
            figure: gives it for a Job of which all micro-batches are laid out.
            count: micro-batches of a Job from which on it grows like that; by default those of this one's Plan.
            period: micro-batches of a period; by default of one of the schedule, after which passes are the same, but
                not always the time-steps that these are put in, where the Order has none.

        Returns:
            The figure for the micro-batches of the program, by that of ``count`` and that of a period more.
        """
        laid_out, whole = self.plan.shape.micro_batches, self.program.shape.micro_batches
        count = laid_out if count is None else count
        period = self.schedule.step(self.plan.shape) if period is None else period

        def of(micro_batches: int) -> Job:
            if micro_batches == laid_out:
                return self
            return self.whole if micro_batches == whole else self._of(micro_batches)

        here = figure(of(count))
        if count == whole:
            return here
        more, (periods, left) = figure(of(count + period)) - here, divmod(whole - count, period)
        # The periods first: products of cycles and all micro-batches may be wider than 64 bits.
        total: _Figure = here + more * periods + more * left // period
        return total

    @property
    def describes_memory(self) -> bool:
        """Whether any stage says what it holds; stages known by their cycles alone may not."""
        return self.program.describes_memory
