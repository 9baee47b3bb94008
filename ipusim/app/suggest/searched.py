"""The result of a search: its plans, the choices that it looked at, and those that are open."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Final

from ipusim.app.study.trial import Trial
from ipusim.app.suggest.choices import Choice
from ipusim.app.suggest.units import Units


@dataclass(frozen=True, eq=False)
class Plan:
    """A plan that was simulated.

    Attributes:
        choice: how the model is laid out.
        cuts: the first unit of each stage.
        units: what was cut.
        trial: what came of it.
    """

    choice: Choice
    cuts: tuple[int, ...]
    units: Units
    trial: Trial

    @property
    def cycles(self) -> int:
        """Cycles of an execution with its weight update."""
        assert self.trial.cycles is not None
        return self.trial.cycles


#: Why a choice is not searched that needs more memory on an IPU, of stages that do not say what they hold.
NEEDS_MEMORY: Final = "it puts stages together on an IPU, and what they hold is not known"


@dataclass(eq=False)
class Searched:
    """How a search went.

    Attributes:
        given_cycles: cycles of the given plan, where it is legal and within the limits: nothing slower is looked at.
        plans: those that were simulated, the fastest first; all of them fit.
        choices: ways to lay the model out but for its cuts.
        refused: how many of them a rule refuses, by its words.
        reasons: by schedule, why its ways were refused, and how many for each reason.
        laid_out: schedules of which a way was not.
        bounded: cuts, begun or whole, that were bounded.
        assembled, simulated: plans that were.
        misfits: plans that did not fit the memory after all.
        too_large: choices that fit the memory under no cut.
        least_bytes: the least that the fullest IPU of any plan needs.
        units: what the model is cut between; None before the search.
        least_of_units: the least of an IPU that holds a unit, under any plan: of each layer, or given stage, by name.
        bound: while the search goes on, the lowest bound of what was not looked at.
        left: the lowest bound of what was not looked at; None where that is everything.
        open: choices of which cuts are left that may be faster than the best plan.
        stopped: what ended the search before that; empty where it is proven.
    """

    given_cycles: int | None = None
    plans: list[Plan] = field(default_factory=list)
    choices: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    reasons: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    laid_out: set[str] = field(default_factory=set)
    bounded: int = 0
    assembled: int = 0
    misfits: int = 0
    too_large: int = 0
    least_bytes: int | None = None
    units: Units | None = None
    least_of_units: dict[str, int] = field(default_factory=dict)
    bound: int = 0
    left: int | None = None
    open: int = 0
    stopped: str = ""

    @property
    def refusal_of(self) -> dict[str, str]:
        """The schedules of which every way was refused, with the most frequent reason."""
        refusals = {name: reasons for name, reasons in self.reasons.items() if name not in self.laid_out}
        return {name: reasons.most_common(1)[0][0] for name, reasons in refusals.items()}

    @property
    def simulated(self) -> int:
        """Plans that were simulated."""
        return len(self.plans)

    @property
    def best_plans(self) -> tuple[Plan, ...]:
        """The best plan of each kind, the fastest first."""
        best: dict[tuple[object, ...], Plan] = {}
        for plan in self.plans:
            best.setdefault(plan.choice.kind, plan)
        return tuple(best.values())

    @property
    def best(self) -> int | None:
        """The best simulated time, in cycles; None where nothing fits so far."""
        cycles = [] if self.given_cycles is None else [self.given_cycles]
        return min([*cycles, *(plan.cycles for plan in self.plans)], default=None)

    def gap(self, bound: int | None) -> float:
        """Return by which share a plan of ``bound`` cycles is faster than the best; 0 where none is."""
        return 0.0 if bound is None or not self.best else max(1 - bound / self.best, 0.0)

    def leave(self, bound: int, reason: str) -> None:
        """Leave cuts of ``bound`` and above unseen, as ``reason`` ended the search of them."""
        self.left = bound if self.left is None else min(self.left, bound)
        self.stopped = reason
