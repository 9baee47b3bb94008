"""A Job: all that a request stands for, laid out, checked and ready to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ipusim.analysis.fit import Fit
from ipusim.hardware.system import System
from ipusim.model.workload import Workload
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing.costs import Costs
from ipusim.pricing.exchanges import HostExchange
from ipusim.runs.content import HeldOut
from ipusim.runs.request.request import Request
from ipusim.schedules.registry import Schedule


@dataclass(frozen=True, eq=False)
class Job:
    """A program, what it runs on, in which order, and what it computes.

    Attributes:
        request: what was asked for.
        system: the device.
        program: the pipeline.
        plan: the order of its operations, which keeps every rule.
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

    @property
    def name(self) -> str:
        """Names the run's folder."""
        return self.program.name

    @property
    def executions(self) -> int:
        """Executions of the pipeline in the whole run."""
        return self.steps * self.program.repeat_count

    @property
    def describes_memory(self) -> bool:
        """Whether any stage says what it holds; stages known by their cycles alone may not."""
        return any(
            profile.parameter_bytes or profile.stash_bytes or profile.state_bytes for profile in self.program.stages
        )
