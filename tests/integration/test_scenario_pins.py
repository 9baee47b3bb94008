"""The scenarios that ship come to what they expect and to what is pinned beside them, as ``ipusim test`` holds them."""

from __future__ import annotations

import json
import random

import pytest

from ipusim.study.pins.file import pin_bytes, pin_path
from ipusim.study.pins.hold import hold
from tests.places import SCENARIOS

FILES = sorted(SCENARIOS.glob("*.yaml"))
#: Values of every kind, that a stranger may put anywhere in a pin.
STRANGE = (None, True, -1, 2**70, 1e308, float("nan"), "", "x" * 300, "\x1b[2J", [], {}, [[]], {"a": {"b": []}})


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_scenario_is_as_it_expects_and_as_it_is_pinned(file):
    found = hold(file)
    assert (found.missed, found.difference, found.mistake) == ((), "", "")
    assert found.pinned
    assert found.expectations
    content = pin_path(file).read_bytes()
    assert len(content) < 50_000
    assert pin_bytes(json.loads(content)) == content


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
    for path in draw.sample(every, 80):
        forged = json.loads(json.dumps(pin))
        here = forged
        for key in path[:-1]:
            here = here[key]
        if draw.random() < 0.2 and isinstance(here, dict):
            del here[path[-1]]
        else:
            here[path[-1]] = draw.choice(STRANGE)
        pin_path(file).write_text(json.dumps(forged))
        found = hold(file)
        ended.add(found.ended)
        assert not any(word in found.mistake for word in ("TypeError", "KeyError", "ValueError", "AttributeError")), (
            path,
            found.mistake,
        )
        assert len(found.mistake.splitlines()) <= 1
        assert all(len(line) < 1000 for line in found.difference.splitlines())
    assert ended >= {"mistake", "missed"}
