"""Every program and fragment of the seeds runs, and has the effect that its text states."""

from __future__ import annotations

import contextvars
import os

import pytest

from ipusim.ipu.program_file import ProgramFile
from tests.seed_programs import names, seed_program, seeds_folder

#: What programs need that is not there yet, each with the programs.
MISSING: dict[str, str] = {
    "compute_gradients of a MapGradientOptimizer outside of a program": "002_map_gradients",
    "control dependencies of what the host computes": "002_print_before",
}
_REASONS = {name: reason for reason, programs in MISSING.items() for name in programs.split()}


def _case(name: str):
    return pytest.param(name, marks=pytest.mark.xfail(strict=True, reason=_REASONS[name])) if name in _REASONS else name


@pytest.mark.skipif(seeds_folder() is None, reason="the seeds are not beside the checkout: see tests/seed_programs.py")
@pytest.mark.parametrize("name", [_case(name) for name in names()])
def test_a_program_of_the_seeds_has_the_effect_that_its_text_states(name, tmp_path, monkeypatch):
    folder = seeds_folder()
    assert folder is not None
    program = seed_program(name, folder)
    file = tmp_path / f"{name}.py"
    file.write_text(program.text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    contextvars.Context().run(ProgramFile(file).run, program.arguments, program.hosts)


def test_what_is_missing_is_a_program():
    assert set(_REASONS) <= set(names())
