"""Every program and fragment of the seeds runs, and has the effect that its text states."""

import contextvars
import functools
import os
import re

import pytest

from ipusim.ipu.keras import datasets
from ipusim.ipu.programs.program_file import ProgramFile
from tests.cli.commands import ipusim
from tests.effort import draws_everything, rarest, sampled
from tests.programs import needs_tensorflow
from tests.seed_programs import names, seed_program, seeds_folder

#: The programs of the pipelining tutorial, whose text shows what each prints, in the order of that.
TUTORIAL = ("001_step1", "001_step2", "001_step3", "001_step4")
#: A program that takes ten thousand steps, and the tutorial's last one cut otherwise.
LONG = ("002_infeed", "001_step4_four_stages", "001_step4_dense128")
#: What a program says that another one of the seeds, or one of scenarios/python/, says as well.
AGAIN = (
    *("001_estimator", "001_step1", "001_step2", "001_step3"),
    *("002_inference", "002_training", "003_outfeed_while_it_runs"),
)
PRINTED = re.compile(r"^Step (0|10), Epoch (\d+\.\d), Mean loss: (\d+\.\d+)$", re.MULTILINE)


def marked(name):
    return pytest.param(name, marks=[rarest] * (name in LONG + AGAIN))


pytestmark = pytest.mark.skipif(
    seeds_folder() is None, reason="the seeds are not beside the checkout: see tests/seed_programs.py"
)


def seeds():
    folder = seeds_folder()
    assert folder is not None
    return folder


#: The images of a dataset, drawn once for all programs: none of them changes what it gets.
_drawn = functools.cache(datasets._draw_images)


@pytest.fixture(autouse=True)
def images(monkeypatch):
    monkeypatch.setattr(datasets, "_draw_images", _drawn)


@sampled(3)
@pytest.mark.parametrize("name", [marked(name) for name in names()])
def test_a_program_of_the_seeds_has_the_effect_that_its_text_states(name, tmp_path, monkeypatch):
    """The tutorial's programs hold themselves that the loss falls."""
    needs_tensorflow()
    import ipusim.ipu.imports.hosted  # noqa: F401, PLC0415 - its settings stay in the process's environment

    program = seed_program(name, seeds())
    file = tmp_path / f"{name}.py"
    file.write_text(program.text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    run = functools.partial(ProgramFile(file).run, program.arguments, program.hosts)
    contextvars.Context().run(run)


@pytest.mark.usefixtures("without_pictures")
@pytest.mark.parametrize("name", [marked(name) for name in TUTORIAL])
def test_ipusim_run_trains_a_program_of_the_tutorial_as_its_text_says(name, tmp_path):
    """The images are drawn, easier than the text's: the loss begins within 0.25 of its, and falls at least as far.

    By default it trains for the first of the text's eleven steps, of which that one and the last are printed.
    """
    (text,) = seeds().glob("001_*.txt")
    shown = PRINTED.findall(text.read_text(encoding="utf-8"))
    assert len(shown) == 2 * len(TUTORIAL)
    file = tmp_path / f"{name}.py"
    file.write_text(seed_program(name, seeds()).text)
    steps = 11 if draws_everything() else 1
    done = ipusim("run", file, "--out", tmp_path / "out", "--profile-steps", 1, "--", "--steps", steps)
    assert done.returncode == 0, done.stderr
    printed = PRINTED.findall(done.stdout)
    begin = 2 * TUTORIAL.index(name)
    both = [*zip(shown[begin : begin + 2], printed, strict=steps == 11)]
    assert len(both) == len(printed)
    for (step, epoch, _), (own_step, own_epoch, _) in both:
        assert (own_step, own_epoch) == (step, epoch)
    (text_begins, begins), *later = ([float(loss) for *_, loss in pair] for pair in both)
    assert begins == pytest.approx(text_begins, abs=0.25)
    for text_ends, ends in later:
        assert ends <= text_ends < begins
    assert (tmp_path / "out" / "summary.json").is_file()
