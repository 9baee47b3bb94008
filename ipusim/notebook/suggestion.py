"""The best plan for what is asked for, in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipusim.notebook import html
from ipusim.notebook.asked import Asked, placed
from ipusim.runs.request.request import Request
from ipusim.study.suggest import suggestion as study
from ipusim.study.suggest import words
from ipusim.study.suggest.choices import Limits


class Suggestion:
    """The best plan that was found; a notebook shows it as a verdict above the plans that come next.

    Attributes:
        found: the suggested plan, what it was found among, and what it is held against.
    """

    def __init__(self, found: study.Suggestion) -> None:
        """Show ``found``."""
        self.found = found

    @property
    def request(self) -> Request:
        """What to ask for: the given request with the suggested plan, ready for :func:`ipusim.run`."""
        return self.found.request

    @property
    def changes(self) -> dict[str, Any]:
        """The options of the plan by their dotted names, None for those to leave out; none if the given one is best."""
        return self.found.changes

    def _repr_html_(self) -> str:
        said = [*words.verdict(self.found), *words.searched_lines(self.found)]
        return html.together([html.table(words.plan_table(self.found)), *map(html.paragraph, said)])

    def __repr__(self) -> str:
        """Say the plan in a sentence."""
        return f"<{type(self).__name__}: {words.plan_words(self.found.job)}>"


def suggest(
    asked: Asked,
    *,
    simulations: int = study.SIMULATIONS,
    seconds: float | None = None,
    **limits: int | str | Sequence[int] | Sequence[str],
) -> Suggestion:
    """Find the best legal plan for what is asked for.

    ``asked`` is what :func:`ipusim.run` takes; ``limits`` are the options of ``ipusim suggest`` by their names, such as
    ``schedules=["grouped"]`` or ``replicas=1``. The search takes at most so many ``simulations``, and ``seconds``.
    Raises OptionError for limits that leave nothing, and as :func:`ipusim.run` does what is wrong with a request.
    """
    taken: dict[str, Any] = {
        name: given if name == "global_batch" else (given,) if isinstance(given, int | str) else tuple(given)
        for name, given in limits.items()
    }
    with placed(asked) as request:
        return Suggestion(study.suggest(request, Limits(**taken), simulations=simulations, seconds=seconds))
