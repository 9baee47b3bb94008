"""Extend pytest: a fixture for runs, and scenarios as tests.

pytest imports this module in every session of an environment with ipusim. Other modules of ipusim are imported on use
by a test.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ipusim.app.notebook.checked_run import CheckedRun

_SUFFIXES = (".yaml", ".yml")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that renews pins, and the setting for scenario folders."""
    text = "renew differing pins of the tested scenarios"
    parser.getgroup("ipusim").addoption("--ipusim-update", action="store_true", help=text)
    text = "folders of scenarios to test, if a scenario has expectations or a pin"
    parser.addini("ipusim_scenarios", text, type="paths", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Collect the scenario folders too, unless the command line names tests.

    Raises UsageError for a missing folder.
    """
    for folder in config.getini("ipusim_scenarios"):
        if not Path(folder).is_dir():
            raise pytest.UsageError(f"ipusim_scenarios: {folder}: expected a folder of scenarios, got none there")
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        folders = [Path(config.invocation_params.dir, arg.partition("::")[0]).resolve() for arg in config.args]
        for folder in config.getini("ipusim_scenarios"):
            if not any(Path(folder).resolve().is_relative_to(known_folder) for known_folder in folders):
                config.args.append(str(folder))


def pytest_report_collectionfinish(config: pytest.Config) -> str:
    """Return the number of scenarios without a pin; empty if every scenario has a pin."""
    if not (folders := config.getini("ipusim_scenarios")):
        return ""
    from ipusim.app.regression.suite import pinless_text, without_pin  # noqa: PLC0415 - as below

    unpinned = without_pin(folders)
    return f"ipusim_scenarios: {pinless_text(len(unpinned))}" if unpinned else ""


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> ScenarioFile | None:
    """Return the collector of a scenario below the configured folders."""
    if file_path.suffix not in _SUFFIXES:
        return None
    folders = [Path(folder) for folder in parent.config.getini("ipusim_scenarios")]
    if not any(file_path.is_relative_to(folder) for folder in folders):
        return None
    from ipusim.app.regression.suite import tests_anything  # noqa: PLC0415 - only tests of scenarios need it

    if not tests_anything(file_path):
        return None
    node: ScenarioFile = ScenarioFile.from_parent(parent, path=file_path)
    return node


@contextmanager
def _refused_exits() -> Iterator[None]:
    """Make `os._exit` raise an error in this process, in place of ending pytest.

    Forked processes keep the original function.
    """
    pid, leave = os.getpid(), os._exit

    def refuse(status: int) -> None:
        if os.getpid() != pid:
            leave(status)
        raise RuntimeError(f"expected code that returns, got os._exit({status}), which would end all tests")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "_exit", refuse)
        yield


class ScenarioFile(pytest.File):
    """Scenario with expectations or a pin."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield its single test."""
        yield ScenarioItem.from_parent(self, name="holds")


class ScenarioItem(pytest.Item):
    """Test of a scenario: fails on missed expectations and on differences from the pin."""

    def runtest(self) -> None:
        """Run the scenario; raises ScenarioFailure with missed expectations, the first difference, or the mistake."""
        from ipusim.app.regression.file import write_pin  # noqa: PLC0415 - as above
        from ipusim.app.regression.scenario_check import check_scenario  # noqa: PLC0415

        with _refused_exits():
            outcome = check_scenario(self.path, renew=self.config.getoption("ipusim_update"))
        if outcome.new_pin is not None:
            write_pin(self.path, outcome.new_pin)
        if outcome.ended != "held":
            raise ScenarioFailure("\n".join(filter(None, [*outcome.missed, outcome.difference, outcome.mistake])))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the missed expectations without lines of this module."""
        if isinstance(excinfo.value, ScenarioFailure):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return the scenario as tested location."""
        return self.path, None, self.path.name


class ScenarioFailure(Exception):  # noqa: N818 - it is no error of a program
    """Missed expectations of a scenario, a line each."""


@pytest.fixture
def ipusim_run(request: pytest.FixtureRequest) -> Callable[..., CheckedRun]:
    """Run scenarios: ``ipusim_run("mine.yaml", pipeline__repeat_count=2)``, relative to the test's file."""

    def run(scenario: str | Path, **changes: Any) -> CheckedRun:
        """Return the Run of a scenario with changed keys; two underscores replace dots in keys."""
        from ipusim.app.notebook.checked_run import checked_run  # noqa: PLC0415 - as above

        options = {name.replace("__", "."): value for name, value in changes.items()}
        update = request.config.getoption("ipusim_update")
        with _refused_exits():
            return checked_run(request.path.parent / scenario, options, update=update)

    return run
