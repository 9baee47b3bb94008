"""Evaluate held-out samples between steps and after the last step, as a hook of a session."""

from __future__ import annotations

from ipusim.model.evaluate import Evaluation, evaluate
from ipusim.model.functions.users_code import Failing
from ipusim.runs.content import HeldOut
from ipusim.runs.session import Session


class Evaluations:
    """Hook for a request's evaluations; ``results`` holds pairs of step and evaluation."""

    def __init__(self, held_out: HeldOut) -> None:
        """Start without results."""
        self.results: list[tuple[int, Evaluation]] = []
        self._held_out = held_out

    def before(self, session: Session, execution: int) -> None:
        """Evaluate at the beginning of every ``interval`` steps, except at the first step."""
        step, execution_in_step = divmod(execution, session.job.program.repeat_count)
        interval = self._held_out.interval
        if interval and step and not execution_in_step and not step % interval:
            self._evaluate(session, step)

    def after(self, session: Session) -> None:
        """Evaluate after the last step."""
        self._evaluate(session, session.job.steps)

    def _evaluate(self, session: Session, step: int) -> None:
        with Failing(f"the evaluation after step {step - 1} failed"):  # a user's function may fail on held-out samples
            result = evaluate(self._held_out.stages, [session.variables()], self._held_out.dataset)
        self.results.append((step, result))
