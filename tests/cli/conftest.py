"""A folder as the repository's top is, for commands that name scenarios and write results; a long command run once."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from subprocess import CompletedProcess
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from tests.cli.commands import answer, ipusim, leave_charts_out, leave_pixels_out
from tests.cli.pages import ROOT
from tests.package_copies import ChangedPackage

if TYPE_CHECKING:
    from ipusim.app.fidelity.validation import Validation
    from ipusim.app.published.validation import ScheduleValidation


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    return tmp_path


@pytest.fixture(scope="session")
def four_run(tmp_path_factory):
    """The folder of a run of ``schedules_four_ipus.yaml``, with empty pictures, to be read only."""
    folder = tmp_path_factory.mktemp("four") / "run"
    answer("run", ROOT / "scenarios" / "schedules_four_ipus.yaml", "--out", folder, "--quiet", pictures=False)
    return folder


@pytest.fixture(scope="module")
def changed(request, tmp_path_factory):
    """Run Python on the package with what a module's ``change`` does to it, beside the files of its ``BESIDE``.

    ``changed(code, *words)`` returns what was printed and complained of, and ``changed.ipusim(*words)`` what the
    command says; ``changed.place`` is the folder.
    """
    place = tmp_path_factory.mktemp("changed")
    for name, text in request.module.BESIDE.items():
        (place / name).write_text(text)
    package = ChangedPackage(place)
    request.module.change(package)
    with package.python() as interpreter:

        def python(code, *words, returncode=0):
            done = interpreter.run(code, *words, folder=place)
            assert done.returncode == returncode, done.stderr
            return done.stdout + done.stderr

        python.place, python.ipusim = place, functools.partial(python, "from ipusim.app.cli import main; main()")
        yield python


@dataclass(frozen=True, repr=False)
class Validate:
    """`ipusim validate`, which simulates all that is published: how it ended, and what it found.

    It has no repr of its fields: of a test that fails pytest would print every Plan, in gigabytes and minutes.
    """

    done: CompletedProcess
    found: Validation | ScheduleValidation


def run_once(module, name, *words):
    """Run the command, and keep what the function ``name`` of a module finds in it."""
    found, real = [], getattr(module, name)

    def kept(*asked):
        found.append(real(*asked))
        return found[-1]

    with mock.patch.object(module, name, kept):
        done = ipusim("validate", *words, columns=None)
    assert (done.returncode, done.stderr) == (0, "")
    return Validate(done, found[0])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Leave what simulates all that is published to ``--every``: --all looks at a row of each model, and at pages."""
    for item in items:
        if {"validate", "validate_schedules"} & {*getattr(item, "fixturenames", ())}:
            item.add_marker("rarest")


@pytest.fixture(scope="session")
def validate():
    """The command as anybody calls it, run once for all tests that look at what it says and finds."""
    from ipusim.app.fidelity import validation  # noqa: PLC0415

    return run_once(validation, "validation_of")


@pytest.fixture(scope="session")
def validate_schedules():
    """The command with --schedules, run once for all tests that look at what it says and finds."""
    from ipusim.app.published import validation  # noqa: PLC0415

    return run_once(validation, "validated_schedules", "--schedules")


@pytest.fixture
def without_charts(monkeypatch):
    """Leave charts empty and lay none out, for tests of words and numbers alone."""
    leave_charts_out(monkeypatch)


@pytest.fixture
def without_pixels(monkeypatch):
    """Leave PNG files empty, whose figures are laid out all the same; SVG files are drawn, and read."""
    leave_pixels_out(monkeypatch)
