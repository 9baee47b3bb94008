"""A user's own Python that fails: one message with layer, file and line and exit code 2, whatever it raises."""

import json
import textwrap

import pytest

from ipusim.runs.execute import execute
from tests.cli.commands import answer, refusal

pytestmark = pytest.mark.usefixtures("without_charts")

SCENARIO = """\
system: {name: m2000}
data: {type: synthetic, shape: [4], classes: 2, samples: 8}
model:
  layers:
    - {name: mine, python: mine.py:layer}
    - {name: out, type: dense, units: 2}
    - {name: cel, python: mine.py:loss, loss: true}
pipeline: {splits: [out], gradient_accumulation_count: 4, micro_batch_size: 2, repeat_count: 4}
optimizer: {type: sgd, learning_rate: 0.1}
"""
HEAD = """\
import sys
import autograd.numpy as np

calls = []

class Leaving(BaseException):
    pass

class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no words")
    __repr__ = __str__

def late():
    calls.append(1)
    return len(calls) > 9  # after the trials that resolve the scenario

"""
LAYER = "def layer(x):\n    return x\n"
LOSS = "def loss(x, labels):\n    return np.mean(x * x)\n"


@pytest.fixture
def scenario(tmp_path):
    """Write a scenario whose layer and loss are of a file mine.py; return its path."""

    def of(layer=LAYER, loss=LOSS):
        (tmp_path / "mine.py").write_text(HEAD + textwrap.dedent(layer) + textwrap.dedent(loss))
        (tmp_path / "scenario.yaml").write_text(SCENARIO)
        return tmp_path / "scenario.yaml"

    return of


def message(path, verb):
    """Run a command of ``ipusim`` that must end with exit code 2, and return its one message."""
    said = refusal(verb, path.name, cwd=path.parent)
    assert not (path.parent / "reports").exists()
    return said


LINE = HEAD.count("\n") + 2
RAISED = {
    "exit": ("sys.exit(0)", "SystemExit: 0"),
    "quietly": ("sys.exit()", "SystemExit"),
    "base": ("raise Leaving('now')", "Leaving: now"),
    "mute": ("raise Mute()", "Mute: (its message cannot be read: RuntimeError)"),
    "key": ("{}['gone']", "KeyError: 'gone'"),
}


@pytest.mark.parametrize("verb", ["check", "run"])
@pytest.mark.parametrize("name", RAISED)
def test_what_a_layer_raises_when_it_is_tried_is_a_message(scenario, name, verb):
    statement, text = RAISED[name]
    path = scenario(f"def layer(x):\n    {statement}\n    return x\n")
    said = message(path, verb)
    place = f"python function 'layer' ({path.parent / 'mine.py'}:{LINE}) on (2, 4)"
    assert said.startswith("scenario.yaml:5:7: model.layers.0: mine ")
    assert said.endswith(f": {place}: {text}\n")


@pytest.mark.parametrize("name", RAISED)
def test_what_a_layer_raises_late_names_layer_file_and_line(scenario, name):
    statement, text = RAISED[name]
    path = scenario(f"def layer(x):\n    if late(): {statement}\n    return x\n")
    said = message(path, "run")
    assert " of stage 'stage0' failed in execution 1: " in said
    place = f"layer 'mine': python function 'layer' ({path.parent / 'mine.py'}:{LINE})"
    assert said.endswith(f": {place}: {text}\n")


def test_what_a_file_raises_is_a_message(scenario):
    for statement, text in RAISED.values():
        path = scenario(f"{statement}\n{LAYER}")
        assert f"mine.py:{LINE - 1}: {text}\n" in message(path, "check")


@pytest.mark.parametrize("what", ["layer", "loss"])
@pytest.mark.parametrize("late", [False, True])
def test_a_function_without_return_is_refused(scenario, what, late):
    body = "    if not late(): return np.mean(x) * x\n" if late else "    np.mean(x)\n"
    if what == "layer":
        path = scenario(layer=f"def layer(x):\n{body}")
    else:
        path = scenario(loss=f"def loss(x, labels):\n{body.replace('* x', '')}")
    said = message(path, "run")
    line = LINE - 1 if what == "layer" else LINE + 1
    assert f"python function {what!r} ({path.parent / 'mine.py'}:{line}) returned nothing: it must return an" in said


def test_an_interrupt_passes(scenario, load):
    for layer in ("    raise KeyboardInterrupt\n", "    if late(): raise KeyboardInterrupt\n"):
        path = scenario(f"def layer(x):\n{layer}    return x\n")
        with pytest.raises(KeyboardInterrupt):
            execute(load(path.read_text()))


def test_links_that_lead_in_a_circle_are_a_message(scenario):
    path = scenario()
    (path.parent / "mine.py").unlink()
    (path.parent / "mine.py").symlink_to("other.py")
    (path.parent / "other.py").symlink_to("mine.py")
    said = message(path, "check")
    assert "'mine.py:layer': cannot read mine.py: its symbolic links lead in a circle" in said
    path.unlink()
    path.symlink_to("scenario.yaml")
    assert "scenario.yaml" in message(path, "run")


def not_finite(path):
    """Run a training that gives no number; return what is printed, and the summary's notes."""
    said = answer("run", path.name, cwd=path.parent)
    assert "lower the learning rate" not in said
    return said, json.loads((path.parent / "reports" / "scenario" / "summary.json").read_text())["notes"]


@pytest.mark.parametrize(
    ("layer", "loss", "origin"),
    [
        (
            "def layer(x):\n    return np.log(-np.abs(x))\n",
            LOSS,
            "layer 'mine' (python function 'layer' (mine.py:19): FloatingPointError: invalid value encountered in log)"
            " in F0.0 of stage 'stage0'",
        ),
        (
            LAYER,
            "def loss(x, labels):\n    return np.mean(x * 0 / 0)\n",
            "layer 'cel' (python function 'loss' (mine.py:21): FloatingPointError: invalid value encountered in divide)"
            " in F1.0 of stage 'stage1'",
        ),
        ("def layer(x):\n    return x * float('nan')\n", LOSS, "layer 'mine' in F0.0 of stage 'stage0'"),
    ],
)
def test_a_training_without_any_loss_names_what_made_the_first_nan(scenario, layer, loss, origin):
    path = scenario(layer, loss)
    said, notes = not_finite(path)
    note = f"All losses are NaN from the first micro-batch: the first value that is not finite is from {origin}."
    assert [each.replace(f"{path.parent}/", "") for each in notes] == [note]
    assert notes[0] in " ".join(said.split())


def test_the_first_nan_is_found_behind_skip_connections_checkpoints_and_recomputation(load, scenario):
    text = scenario("def layer(x):\n    return x - np.inf\n").read_text()
    dense = "    - {name: first, type: dense, units: 4}\n    - {name: mine"
    skip = "    - {name: sum, type: add, from: first}\n    - {name: out"
    again = ("pipeline.allow_recompute=true", "pipeline.recomputation_mode=RecomputeAndBackpropagateInterleaved")
    text = text.replace("    - {name: mine", dense)
    checkpoint = (*again, "pipeline.recomputation_checkpoints=[first]")
    for model, changes in ((text.replace("    - {name: out", skip), ()), (text, again), (text, checkpoint)):
        learning = execute(load(model, *changes)).learning
        assert learning.not_finite.startswith("layer 'mine' "), changes
        assert learning.warning


def test_a_training_that_diverges_later_is_not_said_to_have_begun_so(load, scenario):
    text = scenario().read_text()
    learning = execute(load(text, "optimizer.learning_rate=1e6", "steps=8")).learning
    assert (learning.warning, learning.not_finite) == ("", "")
    assert learning.diverged_at is not None
    fine = execute(load(text)).learning
    assert (fine.warning, fine.diverged_at) == ("", None)
