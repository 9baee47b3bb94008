"""Write the suggested scenario to a file, after a check against the suggested plan."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ipusim.api import runs
from ipusim.app.run_folder.output_file import mark_of
from ipusim.app.scenario.load import job_of
from ipusim.app.scenario.overrides import apply_overrides
from ipusim.app.scenario.problems import ScenarioError
from ipusim.app.scenario.source import parse_source, read_source
from ipusim.app.suggest.scenario_text import suggested_text
from ipusim.app.suggest.suggestion import Suggestion, same_plan
from ipusim.app.synthesize.files import words_file
from ipusim.app.synthesize.starts import NAME
from ipusim.app.synthesize.synthesis import Synthesis
from ipusim.base.errors import OutputError
from ipusim.base.files import write_file


def write_suggested(
    suggestion: Suggestion, scenario: Path, overrides: Iterable[str], out: Path, order: Synthesis | None = None
) -> None:
    """Write the scenario of the suggested plan, with its best known order, to ``out``.

    A synthesized order is written to a Python file next to ``out`` with the same stem; a named schedule is set by name.

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
    if order is not None and (order.new_order is not None or _is_faster(order, suggestion)):
        schedule, reason = order.best.schedule, "the fastest of the named schedules"
        if order.new_order is not None:
            words = out.with_suffix(".py")
            schedule, reason = f"{words.name}:{NAME}", "an order searched for these costs"
            write_file(words, words_file(order).encode())
        sync = order.best.sync.value, reason
        text = runs.edited(text, {("pipeline", "schedule"): (schedule, reason), ("pipeline", "sync"): sync})
    mark = f"# {mark_of('suggest')}\n"
    write_file(out, (text if mark in text else text + mark).encode())


def _is_faster(order: Synthesis, suggestion: Suggestion) -> bool:
    """Return whether the best named schedule differs from the suggested plan and is faster."""
    times, job = order.best.times, suggestion.job
    choice = order.best.schedule, order.best.sync
    if times is None or choice == (job.schedule.name, job.plan.sync):
        return False
    return times.throughput.run_cycles < suggestion.trial.period * times.executions
