"""A layer and a loss cost one module: laid beside those of the package, they are in scenarios, messages and docs."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.package_copies import Interpreter

ROOT = Path(__file__).parents[2]
ADDED = Path(__file__).parent / "added_layer"

SCENARIO = """\
system: {name: m2000}
data: {type: synthetic, shape: [5], classes: 3, samples: 48}
model:
  layers:
    - {name: hidden, type: dense, units: 8, activation: tanh}
    - {name: louder, type: gain, start: 2}
    - {name: block, type: residual, layers: [{name: inside, type: gain}]}
    - {name: scores, type: dense, units: 3}
    - {name: far, type: hinge}
pipeline: {splits: [louder], micro_batch_size: 2, gradient_accumulation_count: 4}
optimizer: {type: sgd, learning_rate: 0.5}
steps: 12
"""

BESIDE = f"import ipusim.model.layers as room; room.__path__.append({str(ADDED)!r})\n"
COMMAND = "from ipusim.__main__ import main; main()"
COSTS = """
from pathlib import Path
from ipusim.app.scenario import load_job
stage = load_job(Path("s.yaml")).program.stages[1]
forward, backward = stage.forward[0], stage.backward[3]
print(forward.vector.elementwise, forward.sram_bytes, backward.vector.elementwise, stage.stash_bytes)
"""
TRAINED = """
import json
from ipusim.app.scenario import load_job
from ipusim.runs.execute import execute
learning = execute(load_job("s.yaml")).learning
weights = {name: value.tolist() for name, value in learning.weights.items()}
print(json.dumps([[each.loss for each in learning.losses], weights]))
"""
PAGE = "import reports.scenario_page as page; print(page.scenario_page())"


@pytest.fixture(scope="module")
def python() -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    with Interpreter(BESIDE, PYTHONPATH=str(ROOT)) as interpreter:
        yield interpreter.run


def test_it_is_trained_by_a_scenario(python, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "s.yaml").write_text(SCENARIO)
    done = python(TRAINED, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    losses, weights = json.loads(done.stdout)
    assert len(losses) == 12 * 4
    assert np.mean(losses[-8:]) < 0.7 * np.mean(losses[:8])
    assert len(weights["louder/g"]) == len(weights["block/inside/g"]) == 8
    assert 2 not in weights["louder/g"]


def test_its_cost_and_memory_are_counted(python, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "s.yaml").write_text(SCENARIO)
    done = python(COSTS, folder=tmp_path)
    elements, scores = 2 * 8, 2 * 3  # of a micro-batch of two
    # Both gains and the dense layer keep their inputs; the loss a side, and whether it is short, of each score.
    kept = 3 * elements * 4 + scores * (4 + 1)
    right = [elements, (2 * elements + 8) * 4, 3 * elements, kept]
    assert [int(word) for word in done.stdout.split()] == right, done.stderr


def test_what_is_wrong_with_it_is_told_as_of_any_other(python, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    wrong = ["{name: a, type: gain, start: 9}", "{name: b, type: gian}", "{name: c, type: gain, begin: 1}"]
    (tmp_path / "s.yaml").write_text(SCENARIO.replace("{name: louder, type: gain, start: 2}", "\n    - ".join(wrong)))
    done = python(COMMAND, "check", "s.yaml", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    bounds, kinds, keys = done.stderr.splitlines()
    assert bounds.endswith("model.layers.1.start: expected a number above 0 to 8, got 9")
    assert "model.layers.2.type: got 'gian'; did you mean gain? Expected gain, " in kinds
    assert keys.endswith("model.layers.3.begin: expected one of the keys name, trainable, type, start, got 'begin'")


def test_the_docs_have_it(python, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    text = python(PAGE, folder=tmp_path).stdout
    row = "| `start` | number above 0 to 8 | `1.0` | what the weights start with | `start: 1.0` |"
    section = text.split("### model.layers[]: gain\n")[1].split("\n#")[0]
    assert section.splitlines()[1] == "Multiplies each element of the last axis by a weight of its own."
    assert row in section.splitlines()
    assert re.findall(r"^### model\.layers\[\]: (\w+)$", text, re.MULTILINE)[-7:] == [
        "softmax_cross_entropy",
        "masked_softmax_cross_entropy",
        "mean_squared_error",
        "ctc",
        "hinge",
        "python",
        "repeat",
    ]
