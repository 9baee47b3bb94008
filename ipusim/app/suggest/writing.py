"""Write the suggested scenario to a file, after a check against the suggested plan."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ipusim.app.run_folder.output_file import mark_of
from ipusim.app.scenario.load import job_of
from ipusim.app.scenario.overrides import apply_overrides
from ipusim.app.scenario.problems import ScenarioError
from ipusim.app.scenario.source import parse_source, read_source
from ipusim.app.suggest.scenario_text import suggested_text
from ipusim.app.suggest.suggestion import Suggestion, same_plan
from ipusim.base.errors import OutputError
from ipusim.base.files import write_file


def write_suggested(suggestion: Suggestion, scenario: Path, overrides: Iterable[str], out: Path) -> None:
    """Write the scenario of the suggested plan to ``out``.

    Raises:
        OutputError: for a scenario that would not run at ``out``, as files named in the scenario lie elsewhere, or
            that would run a different plan.
    """
    source = apply_overrides(read_source(scenario), overrides)
    text = suggested_text(suggestion, source)
    try:
        job = job_of(parse_source(text, out))
    except ScenarioError as error:
        raise OutputError(f"{out}: expected a folder with the files that the scenario names:\n{error}") from None
    if not same_plan(job, suggestion.job):
        raise OutputError(f"{out}: expected the suggested plan, got a different plan: this is an error of ipusim")
    mark = f"# {mark_of('suggest')}\n"
    write_file(out, (text if mark in text else text + mark).encode())
