"""An Experiment: all that a scenario stands for, as values."""

from __future__ import annotations

from dataclasses import dataclass

from ipusim.hardware.system import System
from ipusim.model.datasets import Dataset
from ipusim.model.stage import LayerStage
from ipusim.model.workload import Workload
from ipusim.pipeline.plan import Plan
from ipusim.pipeline.program import PipelineProgram
from ipusim.pricing.costs import Costs
from ipusim.scenario.schema import Scenario
from ipusim.scenario.source import Source


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Evaluation on samples that the training does not see.

    Attributes:
        dataset: the samples.
        stages: one of all layers, that :func:`ipusim.model.evaluate.evaluate` runs them through.
        every: steps from one evaluation to the next; None for one after the last step.
    """

    dataset: Dataset
    stages: tuple[LayerStage, ...]
    every: int | None


@dataclass(frozen=True, eq=False)
class Experiment:
    """A program, what it runs on, and what it computes.

    Attributes:
        name: names the run's folder.
        description: the comment at the head of the scenario, as one line.
        scenario, source: the scenario as written, and where each of its values stands.
        system: the device.
        program: the pipeline.
        plan: the order of its operations, not yet checked.
        costs: what everything of it takes on the device.
        steps: session runs, each of ``program.repeat_count`` executions.
        notes: warnings, in Graphcore's words, about options without an effect.
        workload: the arithmetic; None when only time is simulated.
        held_out: evaluation; None without held-out samples or a loss.
        constant_loss: loss of the best predictor that ignores its input, on the training data;
            None without arithmetic, or when the loss does not say.
    """

    name: str
    description: str
    scenario: Scenario
    source: Source
    system: System
    program: PipelineProgram
    plan: Plan
    costs: Costs
    steps: int
    notes: tuple[str, ...] = ()
    workload: Workload | None = None
    held_out: HeldOut | None = None
    constant_loss: float | None = None

    @property
    def executions(self) -> int:
        """Executions of the pipeline in the whole run."""
        return self.steps * self.program.repeat_count
