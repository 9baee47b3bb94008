"""Record the progress and result of a search: simulated plans, examined choices, and open choices."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Final

from ipusim.app.study.trial import Trial
from ipusim.app.suggest.choices import Choice
from ipusim.app.suggest.units import Units
from ipusim.base.units import counted


@dataclass(frozen=True, eq=False)
class Plan:
    """Simulated plan.

    Attributes:
        choice: layout of the model.
        cuts: first unit of each stage.
        units: units of the model.
        trial: result of the simulation.
    """

    choice: Choice
    cuts: tuple[int, ...]
    units: Units
    trial: Trial

    @property
    def cycles(self) -> int:
        """Cycles of an execution, weight update included."""
        assert self.trial.cycles is not None
        return self.trial.cycles


#: Reason to skip choices with more stages on an IPU, if the memory of the stages is unknown.
NEEDS_MEMORY: Final = "the plan puts several stages on an IPU, and the memory of stages is not known"


@dataclass(eq=False)
class Searched:
    """Progress and result of a search.

    Attributes:
        given_cycles: cycles of the given plan, if legal and within the limits; slower plans are skipped.
        plans: simulated plans that fit, fastest first.
        choices: number of layouts, regardless of cuts.
        refused: number of layouts refused, by the refusing rule's message.
        reasons: number of refused layouts by schedule and reason.
        laid_out: schedules with at least one accepted layout.
        bounded: number of cuts, partial or complete, whose bound was computed, attempts at good cuts included.
        assembled, simulated: numbers of assembled and of simulated plans.
        misfits: number of assembled plans that exceeded memory.
        too_large: number of choices that exceed memory under any cut.
        least_bytes: least bytes on the fullest IPU over all plans.
        units: units of the model; None before the search.
        least_of_units: least bytes of an IPU with a given unit over all plans, by name of the layer or given stage.
        bound: during the search, lowest bound of the plans not yet examined.
        pending_bound: lowest bound of another search for the same suggestion; None without another search.
        is_ended: whether the search has ended, so that only plans of other kinds are still simulated.
        skipped_bound: lowest bound of unexamined plans; None after a complete search.
        open_choices: number of choices with remaining cuts that may be faster than the best plan.
        end_reason: limit that ended the search early; empty if the result is proven.
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
    pending_bound: int | None = None
    is_ended: bool = False
    skipped_bound: int | None = None
    open_choices: int = 0
    end_reason: str = ""

    def words(self) -> str:
        """Return the extent of the search in sentences."""
        large = f", and memory is too small for {self.too_large:,}, whatever the cuts" if self.too_large else ""
        misfits = f" {counted(self.misfits, 'further plan')} did not fit." if self.misfits else ""
        return (
            f"Searched: {counted(self.choices, 'combination')} of schedule, IPUs, replicas and use of memory; rules of "
            f"schedules and compiler refuse {self.refused.total():,} of them{large}. A lower bound of the time was "
            f"computed for {counted(self.bounded, 'way')} to cut the model into stages, and "
            f"{counted(self.simulated, 'plan')} {'was' if self.simulated == 1 else 'were'} simulated.{misfits}"
        )

    @property
    def refusal_of(self) -> dict[str, str]:
        """Schedules without an accepted layout, with their most frequent reason."""
        refusals = {name: reasons for name, reasons in self.reasons.items() if name not in self.laid_out}
        return {name: reasons.most_common(1)[0][0] for name, reasons in refusals.items()}

    @property
    def simulated(self) -> int:
        """Number of simulated plans."""
        return len(self.plans)

    @property
    def best_plans(self) -> tuple[Plan, ...]:
        """Best plan of each kind, fastest first."""
        best: dict[tuple[object, ...], Plan] = {}
        for plan in self.plans:
            best.setdefault(plan.choice.kind, plan)
        return tuple(best.values())

    @property
    def best(self) -> int | None:
        """Cycles of the best simulated plan; None before a plan fits."""
        cycles = [] if self.given_cycles is None else [self.given_cycles]
        return min([*cycles, *(plan.cycles for plan in self.plans)], default=None)

    @property
    def lowest_bound(self) -> int:
        """Lowest bound of skipped and of unexamined plans, also in another search for the same suggestion."""
        bounds = (self.pending_bound, self.skipped_bound)
        return min([self.bound, *(bound for bound in bounds if bound is not None)])

    def gap(self, bound: int | None) -> float:
        """Return the share by which ``bound`` is below the best time; 0 if it is above."""
        return 0.0 if bound is None or not self.best else max(1 - bound / self.best, 0.0)

    def leave(self, bound: int, reason: str) -> None:
        """Record that cuts with bounds of at least ``bound`` were skipped because of ``reason``."""
        self.skipped_bound = bound if self.skipped_bound is None else min(self.skipped_bound, bound)
        self.end_reason = reason

    def leave_with(self, search: Searched) -> None:
        """Record the plans that another search for the same suggestion skipped."""
        self.open_choices += search.open_choices
        if search.skipped_bound is not None:
            self.leave(search.skipped_bound, self.end_reason or search.end_reason)
