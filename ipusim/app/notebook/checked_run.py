"""Run a scenario in a test, with checks against its expectations and a pin (file of an earlier run's results)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ipusim import api
from ipusim.api import assemble, execute
from ipusim.app.notebook.run import Run
from ipusim.app.regression.difference import difference
from ipusim.app.regression.expectations import check_expectations, judge
from ipusim.app.regression.file import check_target, pin_bytes, pin_path, read_pin
from ipusim.app.regression.pin import pin_of
from ipusim.app.scenario.load import placed_request
from ipusim.base.files import has_run_file, write_file


class CheckedRun(Run):
    """Run of a scenario with checks for tests.

    Attributes:
        scenario: path of the scenario.
    """

    def __init__(self, result: api.Run, scenario: Path, update: bool) -> None:
        """Prepare checks of ``result`` for ``scenario``; ``update`` renews pins instead of comparing."""
        super().__init__(result)
        self.scenario = scenario
        self._update = update

    def check_expectations(self) -> None:
        """Raise AssertionError with the missed expectations of the scenario.

        Raises RequestError for a figure that the run lacks, and AssertionError for a scenario without expectations.
        """
        __tracebackhide__ = True
        options = self.request.options
        if not options.expect:
            raise AssertionError(f"{self.scenario}: expected a scenario with expectations, got none: add expect")
        failures = [
            str(judgement) for judgement in judge(options, self.result.summary.to_dict()) if not judgement.is_met
        ]
        if failures:
            raise AssertionError("\n".join([f"{self.scenario} is not as expected", *failures]))

    def check_pin(self, path: Path | str | None = None) -> None:
        """Raise AssertionError with the run's first difference from a pin, and its causes.

        ``path`` is relative to the scenario's folder; the default is the pin beside the scenario. With
        ``--ipusim-update`` the pin is written anew. Raises FileError for a file that is no pin of this scenario.
        """
        __tracebackhide__ = True
        file = pin_path(self.scenario) if path is None else self.scenario.parent / path
        if self._update:
            check_target(file)
            content = pin_bytes(pin_of(self.result))
            if not file.exists() or file.read_bytes() != content:
                write_file(file, content, follow=False)
            return
        if not has_run_file(file):
            text = "expected a pin, got no such file: `ipusim test --pin` and --ipusim-update write it"
            raise AssertionError(f"{file}: {text}")
        change = difference(read_pin(file, self.result.job.name), self.result)
        if change is not None:
            raise AssertionError(f"{self.scenario} differs from {file.name}\n{change}")


def checked_run(scenario: Path, changes: Mapping[str, Any], *, update: bool = False) -> CheckedRun:
    """Run a scenario with changed options, given by dotted name.

    Raises:
        ScenarioError: with every problem of the scenario and its changes.
        PlanError: if a user's schedule breaks a rule of Plans.
        MissingTensorError: if a pass needs a tensor that has not arrived.
        DeadlockError: if no process can continue.
    """
    with placed_request(scenario) as request:
        job = assemble(request.replace(changes) if changes else request)
        check_expectations(job)
        return CheckedRun(execute(job), scenario, update)
