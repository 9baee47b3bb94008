"""Suggest the best plan for a request in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ipusim.api import Request, runs
from ipusim.app.notebook.checked import check_types
from ipusim.app.notebook.request import Changes, RequestLike, open_request
from ipusim.app.notebook.result import ResultView
from ipusim.app.suggest import suggestion as study
from ipusim.app.suggest import words
from ipusim.app.suggest.budget import Budget
from ipusim.app.suggest.limits import Limits
from ipusim.base.errors import OptionError
from ipusim.base.near_names import did_you_mean

if TYPE_CHECKING:
    import pandas as pd


class Suggestion(ResultView):
    """Best plan of a search, or the reason for its absence.

    A notebook shows the plan above further plans.

    Attributes:
        result: result of the search: suggested plan, other candidates, and the scenario's plan.

    Example:
        >>> import ipusim
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> suggestion = ipusim.suggest(options, seconds=None, schedules=["grouped", "interleaved"], replicas=1)
        >>> suggestion.outcome, suggestion.gap
        ('plan', 0.0)
        >>> suggestion.request.options.pipeline.schedule
        'grouped'
    """

    def __init__(self, result: study.Suggestion) -> None:
        """Show ``result``."""
        super().__init__(words.SuggestionResult(result))
        self.result = result

    @property
    def outcome(self) -> str:
        """Result of the search: ``plan``, ``none fits`` (proven), or ``none found`` (not proven)."""
        return self.result.outcome.value

    @property
    def why_none(self) -> str:
        """Reason for a missing plan; empty with a plan."""
        return self.result.why_none

    @property
    def gap(self) -> float:
        """Upper bound of the share by which another plan could be faster; 0 for a proven optimum."""
        return self.result.gap

    @property
    def request(self) -> Request:
        """Original request with the suggested plan, ready for :func:`ipusim.run`. Raises IpusimError without a plan."""
        return self.result.request

    @property
    def changes(self) -> dict[str, Any]:
        """Options of the plan by dotted name, None to unset; empty if the request's plan is best."""
        return self.result.changes

    @property
    def by_ipus(self) -> dict[int, Suggestion | str]:
        """Suggestion for each number of IPUs if ``ipus`` names several, or the message that refuses the number."""
        return {
            ipus: found if isinstance(found, str) else Suggestion(found) for ipus, found in self.result.by_ipus.items()
        }

    def frame(self) -> pd.DataFrame:
        """Return rows for the best, further and given plans; needs pandas.

        Returns:
            A DataFrame, without rows if there is no plan:

            - plan: ``best``, ``other`` or ``given``;
            - schedule, sync, stages, placement, ipus, replicas, gradient_accumulation_count, micro_batch_size,
              recompute: options of the plan;
            - peak_bytes, sram_bytes: memory peak of the fullest IPU, and memory of an IPU;
            - fits: answer to whether every IPU holds the needed memory;
            - weight_update_period_s: seconds between weight updates;
            - times_best: weight_update_period_s over that of the suggested plan.
        """
        return super().frame()

    def __repr__(self) -> str:
        """Return the plan in a sentence, or the reason for its absence."""
        return f"<{type(self).__name__}: {self.why_none or words.plan_words(self.result.job)}>"


@check_types
def suggest(
    source: RequestLike,
    *,
    changes: Changes = None,
    simulations: int = study.SIMULATIONS,
    seconds: float | None = study.SECONDS,
    **limits: int | str | Sequence[int] | Sequence[str],
) -> Suggestion:
    """Return the best legal plan for a request.

    ``outcome`` tells whether a plan was found, no plan fits, or the search ended without a result.

    Args:
        source: request as in :func:`ipusim.run`.
        changes: changed options, as in :func:`ipusim.run`.
        simulations: maximum number of plans to simulate; 200 by default.
        seconds: time limit of the search, 60 by default; None to search until the plan is proven the best.
        limits: options of ``ipusim suggest`` by name, such as ``schedules=["grouped"]`` or ``replicas=1``.

    Returns:
        The plan, or the reason for its absence.

    Raises:
        OptionError: for unknown limits, and for limits without any plan.
        RequestError: for an invalid request; ScenarioError for an invalid file.

    Example:
        >>> import ipusim
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> ipusim.suggest(options, seconds=None, schedules=["grouped", "interleaved"], replicas=1)
        <Suggestion: grouped in lock-step, 2 stages on 2 IPUs, 4 micro-batches of 1>
    """
    names = [field.name for field in fields(Limits)]
    checked_limits: dict[str, Any] = {}
    for name, limit in limits.items():
        if name not in names:
            raise OptionError(name, f"expected one of {runs.one_of(names)}{did_you_mean(name, names)}")
        kind, noun = (int, "whole numbers") if "int" in Limits.__annotations__[name] else (str, "texts")
        values = limit if isinstance(limit, list | tuple) else [limit]
        if not all(isinstance(value, kind) and not isinstance(value, bool) for value in values):
            raise OptionError(name, f"expected {noun}, got {runs.show(limit)}")
        checked_limits[name] = limit if name == "global_batch" else tuple(values)
    budget = Budget(seconds)
    with open_request(source, changes) as request:
        return Suggestion(study.suggest(request, Limits(**checked_limits), simulations=simulations, budget=budget))
