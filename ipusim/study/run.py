"""One experiment, executed: the Timeline, the losses that the training really gives, and the evaluation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from ipusim.analysis.fit import Fit, fit
from ipusim.analysis.learning import Learning, received
from ipusim.analysis.orders import order_reports
from ipusim.analysis.summary import Summary, summarise
from ipusim.machine.cross_replica import replicas_of
from ipusim.machine.numpy_executor import NumpyExecutor
from ipusim.machine.simulate import Progress, simulate
from ipusim.model.evaluate import Evaluation, evaluate
from ipusim.model.users_code import Failing
from ipusim.model.workload import Workload
from ipusim.pipeline.check import check
from ipusim.pipeline.footprint import footprint
from ipusim.pipeline.plan import Plan
from ipusim.scenario.experiment import Experiment
from ipusim.scenario.memory import check_memory
from ipusim.timeline.timeline import Timeline


@dataclass(frozen=True, eq=False)
class Result:
    """An executed experiment; ``memory`` is what its IPUs hold, against what they have."""

    experiment: Experiment
    plan: Plan
    memory: Fit
    timeline: Timeline
    summary: Summary
    learning: Learning | None

    @property
    def describes_memory(self) -> bool:
        """Whether any stage says what it holds; stages known by their cycles alone may not."""
        return any(
            profile.parameter_bytes or profile.stash_bytes or profile.state_bytes
            for profile in self.experiment.program.stages
        )


def execute(experiment: Experiment, progress: Progress | None = None) -> Result:
    """Lay the experiment's pipeline out, check the Plan, run it and sum it up.

    Raises as :func:`lay_out` does, and MissingTensorError and DeadlockError as the machine does.
    """
    program, system = experiment.program, experiment.system
    plan, memory = lay_out(experiment)
    executor = _Executor(experiment, experiment.workload, plan) if experiment.workload else None
    # One BLAS thread: the same bits on any number of cores, and no spinning over matrices of a few hundred rows.
    # A training that diverges is a result: its losses say so, and NumPy need not.
    with threadpool_limits(limits=1, user_api="blas"), np.errstate(all="ignore"):
        timeline = simulate(
            plan,
            program,
            system,
            costs=experiment.costs,
            executor=executor.together if executor else None,
            executions=experiment.executions,
            progress=progress,
        )
        learning = executor.learning() if executor else None
    summary = summarise(
        timeline,
        program=program,
        system=system,
        costs=experiment.costs,
        fit=memory,
        orders=order_reports(plan, program, system, experiment.costs),
        learning=learning,
        description=experiment.description,
        notes=(*experiment.notes, *filter(None, [learning.warning if learning else ""])),
        steps=experiment.steps,
    )
    return Result(experiment, plan, memory, timeline, summary, learning)


def lay_out(experiment: Experiment) -> tuple[Plan, Fit]:
    """Return the experiment's Plan and what its IPUs hold, each checked: all that may be refused before a run.

    Raises PlanError for a Plan that breaks a rule (a schedule of one's own can), and ScenarioMemoryError
    for a program that does not fit its IPUs, unless the scenario asks for a report of that.
    """
    plan = experiment.plan
    check(plan)
    found = memory_of(experiment, plan)
    if _memory_mode(experiment) == "error":
        check_memory(experiment, found)
    return plan, found


def memory_of(experiment: Experiment, plan: Plan) -> Fit:
    """Return what the IPUs hold under ``plan``, against what they have; nothing is refused."""
    system = experiment.system
    held = footprint(plan, experiment.program, experiment.scenario.code_bytes)
    return fit(plan, held, None if _memory_mode(experiment) == "off" else system.ipu.sram_bytes)


def _memory_mode(experiment: Experiment) -> str:
    return experiment.scenario.memory or ("off" if experiment.system.free else "error")


class _Executor(NumpyExecutor):
    """The arithmetic of the first replica, which also evaluates between steps when the scenario asks for it.

    Attributes:
        others: the executors of the other replicas.
        together: all of them, with what they do together.
    """

    def __init__(self, experiment: Experiment, workload: Workload, plan: Plan) -> None:
        shape, replicas = experiment.program.shape, experiment.system.replicas
        outfeed = experiment.program.outfeed
        super().__init__(shape, workload, 0, replicas, outfeed)
        self.others = tuple(
            NumpyExecutor(shape, workload, replica, replicas, outfeed) for replica in range(1, replicas)
        )
        self._experiment = experiment
        self.together = replicas_of((self, *self.others), plan, experiment.program, experiment.system, experiment.costs)
        self._evaluations: list[tuple[int, Evaluation]] = []

    def begin(self, execution: int) -> None:
        step, within = divmod(execution, self._experiment.program.repeat_count)
        held_out = self._experiment.held_out
        if held_out is not None and held_out.every and step and not within and not step % held_out.every:
            self.together.gather_all()
            self._evaluate(step)
            self.together.let_go_of_all()
        super().begin(execution)

    def _evaluate(self, step: int) -> None:
        held_out = self._experiment.held_out
        if held_out is None:
            return
        with Failing(f"the evaluation after step {step - 1} failed"):  # on other samples a user's function may
            found = evaluate(held_out.stages, [self.weights()], held_out.dataset)
        self._evaluations.append((step, found))

    def learning(self) -> Learning:
        """Return what the run gave, after a last evaluation."""
        self.together.gather_all()
        self._evaluate(self._experiment.steps)
        losses, outputs = received(self._experiment.program, [self.results, *(other.results for other in self.others)])
        return Learning(
            losses=losses,
            outputs=outputs,
            weights=self.weights(),
            evaluations=tuple(self._evaluations),
            constant_loss=self._experiment.constant_loss,
            not_finite=next((each.not_finite for each in (self, *self.others) if each.not_finite), ""),
        )
