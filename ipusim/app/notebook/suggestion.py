"""The best plan for a request, in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ipusim.api import Request, runs
from ipusim.app.notebook.checked import checked
from ipusim.app.notebook.request import Changes, RequestLike, placed
from ipusim.app.notebook.result import Found
from ipusim.app.suggest import suggestion as study
from ipusim.app.suggest import words
from ipusim.app.suggest.budget import Budget
from ipusim.app.suggest.choices import Limits
from ipusim.base.errors import OptionError
from ipusim.base.near_names import did_you_mean

if TYPE_CHECKING:
    import pandas as pd


class Suggestion(Found):
    """The best plan of a search, or why there is none; a notebook shows it above the next best plans.

    Attributes:
        result: the result of the search: the suggested plan, the other candidates, and the plan of the scenario.

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
        """``plan``, ``none fits`` where that is proven, or ``none found`` where the search ended without a result."""
        return self.result.outcome.value

    @property
    def why_none(self) -> str:
        """Why there is no plan; empty where there is one."""
        return self.result.why_none

    @property
    def gap(self) -> float:
        """Upper bound of the share by which another plan could be faster; 0 for a plan that is proven the best."""
        return self.result.gap

    @property
    def request(self) -> Request:
        """The original request with the suggested plan, ready for :func:`ipusim.run`.

        Raises IpusimError where there is no plan.
        """
        return self.result.request

    @property
    def changes(self) -> dict[str, Any]:
        """The plan's options by dotted names, None for options to unset; empty where the request's own plan is best."""
        return self.result.changes

    def frame(self) -> pd.DataFrame:
        """Return a row for the best plan, for good ones of other kinds, and for the given one; needs pandas.

        Returns:
            A DataFrame, without rows where there is no plan:

            - plan: ``best``, ``other`` or ``given``;
            - schedule, sync, stages, ipus, replicas, gradient_accumulation_count, micro_batch_size, recompute: options
              of the plan;
            - peak_bytes, sram_bytes: most bytes that an IPU holds, and its memory;
            - fits: answer to whether every IPU holds what it needs;
            - weight_update_period_s: seconds from one weight update to the next;
            - times_best: weight_update_period_s over that of the suggested plan.
        """
        return super().frame()

    def __repr__(self) -> str:
        """Return the plan in a sentence, or why there is none."""
        return f"<{type(self).__name__}: {self.why_none or words.plan_words(self.result.job)}>"


@checked
def suggest(
    source: RequestLike,
    *,
    changes: Changes = None,
    simulations: int = study.SIMULATIONS,
    seconds: float | None = study.SECONDS,
    **limits: int | str | Sequence[int] | Sequence[str],
) -> Suggestion:
    """Return the best legal plan for a request; its ``outcome`` may also be that none fits, or that none was found.

    Args:
        source: what :func:`ipusim.run` takes.
        changes: other values for options, as :func:`ipusim.run` takes them.
        simulations: how many plans are simulated at most; 200 by default.
        seconds: how long the search may take, 60 by default; None for as long as a proof takes.
        limits: the options of ``ipusim suggest`` by their names, such as ``schedules=["grouped"]`` or ``replicas=1``.

    Returns:
        The plan, or why there is none.

    Raises:
        OptionError: for unknown limits, or that leave nothing.
        RequestError: for what is wrong with a request; ScenarioError where that is a file.

    Example:
        >>> import ipusim
        >>> stages = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
        >>> options = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": stages}}
        >>> ipusim.suggest(options, seconds=None, schedules=["grouped", "interleaved"], replicas=1)
        <Suggestion: grouped in lock-step, 2 stages on 2 IPUs, 4 micro-batches of 1>
    """
    names = [field.name for field in fields(Limits)]
    taken: dict[str, Any] = {}
    for name, limit in limits.items():
        if name not in names:
            raise OptionError(name, f"expected one of {runs.one_of(names)}{did_you_mean(name, names)}")
        kind, what = (int, "whole numbers") if "int" in Limits.__annotations__[name] else (str, "texts")
        values = limit if isinstance(limit, list | tuple) else [limit]
        if not all(isinstance(value, kind) and not isinstance(value, bool) for value in values):
            raise OptionError(name, f"expected {what}, got {runs.show(limit)}")
        taken[name] = limit if name == "global_batch" else tuple(values)
    budget = Budget(seconds)
    with placed(source, changes) as request:
        return Suggestion(study.suggest(request, Limits(**taken), simulations=simulations, budget=budget))
