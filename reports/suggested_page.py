"""Page on a suggested plan: plan, reasons, and traces of the suggested and the given plan."""

from __future__ import annotations

from functools import cache
from typing import Final

from ipusim.app.render.comparison import TracedRun, comparison
from ipusim.app.render.figures import to_png
from ipusim.app.scenario import load_request
from ipusim.app.study.result import table_markdown
from ipusim.app.suggest import words
from ipusim.app.suggest.limits import Limits
from ipusim.app.suggest.plan_table import plan_table
from ipusim.app.suggest.suggestion import Suggestion, suggest
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from reports.gallery import SCENARIOS

#: Scenario of the search.
_SCENARIO: Final = "transformer_eight_ipus"
#: Limits of the search: a pipeline over eight IPUs.
_LIMITS: Final = Limits(ipus=(8,), replicas=(1,), offload=("no",))
_COMMAND: Final = f"ipusim suggest scenarios/{_SCENARIO}.yaml --ipus 8 --replicas 1 --offload no"
PICTURE: Final = "suggested_plan.png"
_HEAD: Final = """\
# A suggested plan

Read here how `ipusim suggest` reports the best plan of a search, with reasons and proof. `python -m reports` makes the
page, with the search of the command below: a small transformer as a pipeline over eight IPUs. The search computes a
lower bound for the time of every plan, and simulates the most promising plans until no bound is below the best
simulated time.
"""


@cache
def _suggested() -> Suggestion:
    return suggest(load_request(SCENARIOS / f"{_SCENARIO}.yaml"), _LIMITS)


def suggested_picture() -> bytes:
    """Draw the given plan above the suggested plan on one time axis."""
    result = _suggested()
    assert result.given_trial.job is not None
    runs = [
        TracedRun(execute(assemble(job.request.replace({"pipeline.repeat_count": 1}))).timeline, name)
        for name, job in (("given plan", result.given_trial.job), ("suggested plan", result.job))
    ]
    return to_png(comparison(runs))


def suggested_page() -> str:
    """Describe the plan suggested for a pipelined model, with reasons."""
    result = _suggested()
    lines = [*words.verdict(result), *words.split_lines(result)]
    return (
        f"{_HEAD}\n```console\n$ {_COMMAND}\n```\n\n"
        + "\n".join(f"- {line.strip()}" for line in lines)
        + f"\n\n{table_markdown(plan_table(result))}\n"
        + "\n\n".join(words.searched_lines(result))
        + f"\n\n![The given plan above the suggested one]({PICTURE})\n\n"
        "All activations fit, so recomputation only costs time. Cuts inside the blocks balance the stages better than "
        "cuts between blocks.\n"
    )
