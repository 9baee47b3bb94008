"""The scenarios that ship come to what they expect and to what is pinned beside them, as ``ipusim test`` holds them."""

import functools
import json
import random
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from ipusim.app.regression import scenario_check
from ipusim.app.regression.difference import difference
from ipusim.app.regression.file import pin_bytes, pin_path, read_pin
from ipusim.app.regression.scenario_check import check_scenario
from ipusim.runs.execute import execute
from tests.effort import draws_everything, share, slowest
from tests.golden import losses
from tests.replay.record import machine
from tests.scenarios import SCENARIOS

FILES = sorted(SCENARIOS.glob("*.yaml"))
#: Scenarios that take long, of which others show the same: the largest training, the steps of the tutorial that come to
#: the losses of its first (two more train in pipelines), and the larger of two BERTs.
LONG = (
    "bert_large",
    "transformer_eight_ipus",
    "tutorial_step2_sharding",
    "tutorial_step3_pipelining",
    "tutorial_step4_configurable_stages",
)
#: Values of every kind, that a stranger may put anywhere in a pin.
STRANGE = (None, True, -1, 2**70, 1e308, float("nan"), "", "x" * 300, "\x1b[2J", [], {}, [[]], {"a": {"b": []}})


def check_losses(name, run, golden):
    """Hold the losses against the golden ones: their bits on a machine that is listed, and else what rounding leaves.

    A pin, which people share, lets losses differ by rounding everywhere.
    """
    here = losses.losses_of(run)
    if name not in golden[0]["scenarios"]:
        assert here is None
        return
    same = [each["scenarios"][name] for each in golden if each["machine"] == machine()]
    if same:
        assert [here] == same, "if that is meant: python -m tests.golden.losses"
        return
    means, right = ([*map(float.fromhex, each["mean_by_step"])] for each in (here, golden[0]["scenarios"][name]))
    np.testing.assert_allclose(means, right, rtol=1e-4)


@functools.cache
def held(file):
    """Hold a scenario against its expectations and its pin; returns what was found, and the run."""
    runs = []
    with mock.patch.object(scenario_check, "execute", lambda job: runs.append(execute(job)) or runs[-1]):
        found = check_scenario(file)
    (run,) = runs
    return found, run


@pytest.mark.parametrize(
    "file", [pytest.param(file, marks=slowest if file.stem in LONG else (), id=file.stem) for file in FILES]
)
def test_every_scenario_is_as_it_expects_and_as_it_is_pinned(file):
    found, run = held(file)
    assert (found.missed, found.difference, found.mistake) == ((), "", "")
    assert found.pinned
    assert found.expectations
    content = pin_path(file).read_bytes()
    assert len(content) < 50_000
    assert pin_bytes(json.loads(content)) == content
    check_losses(file.stem, run, losses.read())


def test_a_loss_that_differs_in_its_last_bit_is_let_pass():
    """Beside pins lie golden losses, whose bits are held on the machines that they name."""
    file = SCENARIOS / "tutorial_step1_single_ipu.yaml"
    _, run = held(file)
    first, *others = run.learning.losses
    changed = replace(first, loss=float(np.nextafter(first.loss, 9.0)))
    other = replace(run, learning=replace(run.learning, losses=(changed, *others)))
    assert losses.losses_of(other) != losses.losses_of(run)
    assert difference(read_pin(pin_path(file), file.stem), other) is None


def places(data, path=()):
    """Yield the path of every value in a pin."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def test_a_strangers_pin_ends_in_a_result_or_one_message(tmp_path):
    draw = random.Random(25)
    name = "recomputation"
    file = tmp_path / f"{name}.yaml"
    file.write_bytes((SCENARIOS / file.name).read_bytes())
    pin = json.loads((SCENARIOS / f"{name}.pin.json").read_text())
    every = list(places(pin))
    ended = set()
    for path in draw.sample(every, share(80)):
        forged = json.loads(json.dumps(pin))
        here = forged
        for key in path[:-1]:
            here = here[key]
        if draw.random() < 0.2 and isinstance(here, dict):
            del here[path[-1]]
        else:
            here[path[-1]] = draw.choice(STRANGE)
        pin_path(file).write_text(json.dumps(forged))
        found = check_scenario(file)
        ended.add(found.ended)
        assert not any(word in found.mistake for word in ("TypeError", "KeyError", "ValueError", "AttributeError")), (
            path,
            found.mistake,
        )
        assert len(found.mistake.splitlines()) <= 1
        assert all(len(line) < 1000 for line in found.difference.splitlines())
    assert ended & {"mistake", "missed"}
    assert not draws_everything() or ended >= {"mistake", "missed"}
