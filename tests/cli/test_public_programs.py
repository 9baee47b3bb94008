"""Outcomes of public programs: what a run of each kind of program is called, and the page that shows them."""

from dataclasses import replace

import pytest

from ipusim.ipu.keras import datasets
from reports.programs_page import programs_page
from reports.public_programs import (
    OUTCOMES,
    Outcome,
    Program,
    as_csv,
    judged,
    main,
    read_programs,
    run,
    write_images,
)
from tests.effort import rarest

PROGRAM = Program(
    "graphcore/made", "1234567", "folder/program.py", "3", "total 6", "", Outcome.REFUSED, "not run", "abcdef0"
)
TEXT = """
import sys
import tensorflow.compat.v1 as tf
from tensorflow.python import ipu

queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
loop = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(int(sys.argv[1]), lambda x: (x + 2, queue.enqueue(x)), [0.0]))
with tf.Session() as session:
    session.run(loop)
    print("total", int(sum(session.run(queue.dequeue()))))
"""


@rarest
@pytest.mark.parametrize(
    ("text", "outcome", "why"),
    [
        (TEXT, Outcome.RUNS, ""),
        (TEXT + "raise ValueError('no more')", Outcome.REFUSED, "ValueError: no more"),
    ],
)
def test_a_program_runs_or_is_refused(text, outcome, why, tmp_path):
    file = tmp_path / PROGRAM.checkout / PROGRAM.path
    file.parent.mkdir(parents=True)
    file.write_text(text)
    found = run(PROGRAM, tmp_path)
    assert (found.outcome, found.why[: len(why)]) == (outcome, why)
    assert bool(found.why) == bool(why)
    assert replace(found, outcome=PROGRAM.outcome, why=PROGRAM.why) == PROGRAM
    assert [path.name for path in file.parent.iterdir()] == ["program.py"]


@pytest.mark.parametrize(
    ("name", "shape"), [("mnist", (28, 28)), ("fashion_mnist", (28, 28)), ("cifar10", (32, 32, 3))]
)
def test_a_run_has_small_data_where_its_row_needs_them(name, shape, tmp_path, monkeypatch, capsys):
    program = replace(PROGRAM, needs=f"data: 20 images of {name}, generated; PYTHONPATH=..")
    assert program.needs_nothing
    assert not replace(program, needs=f"{program.needs}; matplotlib").needs_nothing
    monkeypatch.setenv("HOME", str(tmp_path))
    write_images(tmp_path / ".keras" / "datasets", *program.images)
    (x, y), (x_test, y_test) = getattr(datasets, name).load_data()
    assert x.shape == x_test.shape == (20, *shape)
    assert len(y) == len(y_test) == 20
    assert capsys.readouterr().err == ""


def test_a_program_is_judged_by_how_it_ends():
    refused = judged(PROGRAM, 2, "total 6", f"ipusim\n/tmp/{PROGRAM.checkout}/{PROGRAM.path}:8: no more\n")
    assert (refused.outcome, refused.why) == (Outcome.REFUSED, "program.py:8: no more")
    traced = judged(
        PROGRAM, 1, "", "Trace:\npackage.UnknownError: no more\n\nOriginal stack trace for 'loop':\n  File\n"
    )
    assert traced.why == "package.UnknownError: no more"
    differs = judged(PROGRAM, 0, "total 7", "")
    assert (differs.outcome, differs.why) == (Outcome.DIFFERS, "prints nothing such as total 6")
    runs = judged(PROGRAM, 0, "total 6", "")
    assert (runs.outcome, runs.why) == (Outcome.RUNS, "")


def test_a_program_that_takes_too_long_is_no_success(tmp_path, monkeypatch):
    found = judged(PROGRAM, None, "total 6", "")
    assert (found.outcome, found.why) == (Outcome.UNDECIDED, "not done after 3600 s")
    monkeypatch.setattr("reports.public_programs._LIMIT", 1)
    file = tmp_path / PROGRAM.checkout / PROGRAM.path
    file.parent.mkdir(parents=True)
    file.write_text("while True:\n    pass\n")
    found = run(PROGRAM, tmp_path)
    assert (found.outcome, found.why) == (Outcome.UNDECIDED, "not done after 1 s of processor time")


def test_outcomes_are_read_as_they_were_written(tmp_path):
    programs = read_programs()
    assert as_csv(programs) == OUTCOMES.read_text()
    assert len({(program.checkout, program.path) for program in programs}) == len(programs)
    file = tmp_path / "outcomes.csv"
    file.write_text(as_csv([replace(PROGRAM, why='a "quoted", two-\nline why')]))
    assert read_programs(file)[0].why == 'a "quoted", two-\nline why'


@pytest.mark.parametrize(
    ("states", "sentence"),
    [
        (["a", "a"], "All outcomes are of ipusim at commit a."),
        (["b", "a", "b"], "Number of outcomes by commit of ipusim: 2 at b, 1 at a. A refusal"),
        (["b", "", "a", "b"], "Number of outcomes by commit of ipusim: 2 at b, 1 at a. 1 program did not run yet. A"),
        (["", "a"], "All outcomes are of ipusim at commit a. 1 program did not run yet."),
    ],
)
def test_the_page_says_of_which_commits_the_outcomes_are(states, sentence, monkeypatch):
    programs = tuple(replace(PROGRAM, path=str(place), state=state) for place, state in enumerate(states))
    monkeypatch.setattr("reports.programs_page.read_programs", lambda *_: programs)
    assert [line for line in programs_page().splitlines() if line.startswith(sentence)]


@pytest.mark.parametrize(("why", "kept"), [("no more; by hand", "no more; by hand"), ("once", "no more")])
def test_an_outcome_is_of_the_commit_that_ran_it_and_a_remark_stays_with_its_message(why, kept, tmp_path, monkeypatch):
    outcomes = tmp_path / "outcomes.csv"
    outcomes.write_text(as_csv([replace(PROGRAM, why="once"), replace(PROGRAM, path="other.py", why=why)]))
    monkeypatch.setattr("reports.public_programs.state", lambda: "1111111")
    monkeypatch.setattr("reports.public_programs.run", lambda program, _: replace(program, why="no more"))
    main(tmp_path, "other", outcomes)
    assert [(each.why, each.state) for each in read_programs(outcomes)] == [("once", "abcdef0"), (kept, "1111111")]
