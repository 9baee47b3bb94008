"""Whoever names a folder of results has named no program: nothing that its scenario names runs or is read elsewhere."""

import contextlib
import shutil

import pytest

import ipusim as package
from tests.cli.commands import answer, ipusim, refusal

MODEL = """
system: {name: free, auto_select_ipus: 2}
pipeline: {splits: [last], gradient_accumulation_count: 4 PIPELINE}
optimizer: {type: sgd, learning_rate: 0.1}
data: DATA
model:
  layers:
    - {name: first, type: dense, units: 4}
    MIDDLE
    - {name: last, type: dense, units: 3}
    LOSS
"""
WHOLE = {
    "PIPELINE": "",
    "DATA": "{type: synthetic, samples: 8, shape: [4], classes: 3}",
    "MIDDLE": "- {name: middle, type: dense, units: 4}",
    "LOSS": "- {name: loss, type: softmax_cross_entropy}",
}
#: Of each place where a scenario names Python: what stands there, and what the message quotes.
PYTHON = {
    "a schedule": ({"PIPELINE": ", schedule: 'evil.py:order'"}, "'evil.py:order'"),
    "a layer": ({"MIDDLE": "- {name: middle, python: 'evil.py:layer'}"}, "'evil.py:layer'"),
    "a layer that repeats": (
        {"MIDDLE": "- {repeat: 2, layers: [{name: middle, python: '../evil.py:layer'}]}"},
        "'../evil.py:layer'",
    ),
    "a layer of a block": (
        {"MIDDLE": "- {name: block, type: residual, layers: [{name: middle, python: 'evil.py:layer'}]}"},
        "'evil.py:layer'",
    ),
    "a loss": ({"LOSS": "- {name: loss, python: 'evil.py:loss', loss: true}"}, "'evil.py:loss'"),
}
#: The same of files that lie elsewhere.
ELSEWHERE = {
    "data": ({"DATA": "{type: npz, file: ../data.npz}"}, "'../data.npz'"),
    "data through a link": ({"DATA": "{type: npz, file: link.npz}"}, "'link.npz'"),
    "cycles": ({"PIPELINE": ", cycles: ../stages.csv"}, "'../stages.csv'"),
    "an order": ({"PIPELINE": ", schedule: below/../../order.csv"}, "'below/../../order.csv'"),
    "rates": ({"PIPELINE": "}\nrates: /etc/rates.yaml\nnumerics: {"}, "'/etc/rates.yaml'"),
}
EVIL = """
import pathlib
pathlib.Path({marker!r}).touch()
def layer(x): return x
def loss(x, y): return x.sum()
def order(shape): raise SystemExit
"""


@pytest.fixture
def stranger(four_run, tmp_path):
    """The folder as it came, with Python in it and beside it that leaves a mark as soon as it runs."""
    folder = tmp_path / "stranger"
    shutil.copytree(four_run, folder)
    for place in (folder, tmp_path):
        (place / "evil.py").write_text(EVIL.format(marker=str(tmp_path / "it ran")))
    (folder / "link.npz").symlink_to("../data.npz")
    return folder


def naming(changes):
    """Return a scenario that names something in some places."""
    text = MODEL
    for key, value in (WHOLE | changes).items():
        text = text.replace(key, value)
    return text.replace("numerics: {}", "numerics: off")


@pytest.mark.parametrize("place", PYTHON | ELSEWHERE)
def test_what_needs_it_says_so_and_asks_for_the_option(stranger, place, without_charts):
    changes, named = (PYTHON | ELSEWHERE)[place]
    (stranger / "scenario.yaml").write_text(naming(changes))
    what = "Python" if place in PYTHON else "files outside of its folder"
    text = f"The effect of changes is not known: {stranger}/scenario.yaml names {what}, {named}; "
    asks = "the option trust of explain runs and reads these files."
    assert text + asks in answer("explain", stranger)
    assert text + asks in package.load(stranger).explain().words


@pytest.mark.parametrize("place", ["a schedule", "a layer", "a loss"])
def test_with_the_option_it_runs(stranger, place, without_charts):
    (stranger / "scenario.yaml").write_text(naming(PYTHON[place][0]))
    ipusim("explain", stranger, "--trust")
    (stranger.parent / "it ran").unlink()
    with contextlib.suppress(package.IpusimError):  # of the order, which refuses
        package.load(stranger).explain(trust=True)
    (stranger.parent / "it ran").unlink()


def test_a_scenario_that_is_a_link_is_not_followed(stranger, without_charts):
    path = stranger / "scenario.yaml"
    path.rename(stranger.parent / "other.yaml")
    path.symlink_to("../other.yaml")
    refused = f"{path}: expected a file, got a link, which is not followed in a folder of results\n"
    for trust in ((), ("--trust",)):
        assert refusal("explain", stranger, *trust) == refused


def test_files_inside_of_the_folder_are_read_as_before(stranger, without_charts):
    (stranger / "stages.csv").write_text("stage,forward,backward\n0,10,20\n1,20,30\n")
    (stranger / "scenario.yaml").write_text(naming({"PIPELINE": ", cycles: stages.csv"}))
    assert "Changes that save" in ipusim("explain", stranger).stdout
