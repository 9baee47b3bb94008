"""Page on a suggested plan: plan, reasons, and traces of the suggested and the given plan."""

from __future__ import annotations

from functools import cache
from typing import Final

from ipusim.app.render.comparison import TracedRun, comparison
from ipusim.app.render.figures import to_png
from ipusim.app.scenario import load_request
from ipusim.app.study.result import table_markdown
from ipusim.app.suggest import words
from ipusim.app.suggest.choices import Limits
from ipusim.app.suggest.suggestion import Suggestion, suggest
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from reports.gallery import SCENARIOS

#: Scenario and limits of the search: a pipeline over eight IPUs.
_SCENARIO: Final = "transformer_eight_ipus"
_LIMITS: Final = Limits(ipus=(8,), replicas=(1,), offload=("no",))
_COMMAND: Final = f"ipusim suggest scenarios/{_SCENARIO}.yaml --ipus 8 --replicas 1 --offload no"
PICTURE: Final = "suggested_plan.png"


@cache
def _suggested() -> Suggestion:
    return suggest(load_request(SCENARIOS / f"{_SCENARIO}.yaml"), _LIMITS)


def suggested_picture() -> bytes:
    """Draw the given plan above the suggested plan on one time axis."""
    found = _suggested()
    assert found.given_trial.job is not None
    runs = [
        TracedRun(execute(assemble(job.request.replace({"pipeline.repeat_count": 1}))).timeline, name)
        for name, job in (("given plan", found.given_trial.job), ("suggested plan", found.job))
    ]
    return to_png(comparison(runs))


def suggested_page() -> str:
    """Describe the plan suggested for a pipelined model, with reasons."""
    found = _suggested()
    lines = [*words.verdict(found), *words.split_lines(found)]
    return (
        "# A suggested plan\n\n"
        "The small transformer of the scenario, as a pipeline over its eight IPUs: where to cut it, and under which "
        "schedule. The search bounds every plan from below and simulates what may be fastest, until nothing that is "
        "left can be faster.\n\n"
        f"```console\n$ {_COMMAND}\n```\n\n"
        + "\n".join(f"- {line.strip()}" for line in lines)
        + f"\n\n{table_markdown(words.plan_table(found))}\n"
        + "\n\n".join(words.searched_lines(found))
        + f"\n\n![The given plan above the suggested one]({PICTURE})\n\n"
        "Activations fit, so that computing them again costs time for nothing; and cuts within the blocks make the "
        "stages more even than cuts between them.\n"
    )
