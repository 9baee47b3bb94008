"""Every program and fragment of the seeds runs, and has the effect that its text states."""

from __future__ import annotations

import contextvars
import os

import pytest

from ipusim.ipu.program_file import ProgramFile
from tests.seed_programs import names, seed_program, seeds_folder


@pytest.mark.skipif(seeds_folder() is None, reason="the seeds are not beside the checkout: see tests/seed_programs.py")
@pytest.mark.parametrize("name", names())
def test_a_program_of_the_seeds_has_the_effect_that_its_text_states(name, tmp_path, monkeypatch):
    folder = seeds_folder()
    assert folder is not None
    program = seed_program(name, folder)
    file = tmp_path / f"{name}.py"
    file.write_text(program.text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    contextvars.Context().run(ProgramFile(file).run, program.arguments, program.hosts)
