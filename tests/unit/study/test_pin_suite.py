"""The order in which pinned scenarios begin, by what their pins say of them."""

import json
from itertools import starmap

import pytest

from ipusim.app.regression import scenario_check, suite
from ipusim.app.regression.listed import Items, fingerprint, first_difference
from ipusim.app.regression.outcome import Outcome
from tests.scenarios import SCENARIOS


@pytest.fixture(autouse=True)
def in_turn(monkeypatch):
    """Replace the workers by calls in this process, in turn, of a check that always passes."""
    monkeypatch.setattr(suite, "side_by_side", lambda function, calls, *_, **__: starmap(function, calls))
    monkeypatch.setattr(scenario_check, "check_scenario", lambda path, **how: Outcome(path, "held"))


def test_scenarios_that_last_longest_begin_first(tmp_path):
    """Of those that ship: with two workers, none begins late that is a large part of all the work."""
    new = tmp_path / "new.yaml"
    ended = [outcome.path.stem for outcome in suite.check_all([*sorted(SCENARIOS.glob("*.yaml")), new], workers=1)]
    assert ended[:3] == ["new", "transformer_eight_ipus", "data_parallel_4x4"]  # one without a pin may be of any length
    second = {name for name in ended if name.startswith("tutorial_")} | {"bert_large"}
    assert set(ended[3:8]) == second
    assert ended.index("resnet50") < ended.index("interleaved_1f1b") < ended.index("schedules_four_ipus")


def test_a_strangers_number_of_spans_may_be_beyond_floats(tmp_path):
    pin = json.loads((SCENARIOS / "recomputation.pin.json").read_text())
    pin["spans"]["count"] = 10**400
    (tmp_path / "recomputation.pin.json").write_text(json.dumps(pin))
    paths = [SCENARIOS / "bert_large.yaml", tmp_path / "recomputation.yaml"]
    assert [outcome.path for outcome in suite.check_all(paths, workers=1)] == paths[::-1]


def test_a_changed_block_of_one_item_is_told_by_its_text():
    def items(texts):
        return Items(len(texts), texts.__getitem__, lambda start, end: "".join(texts[start:end]).encode())

    pinned = fingerprint(items("abcdefghij"), 2)
    assert first_difference("span", pinned, items("abcdefghij")) == ""
    changed = first_difference("span", pinned, items("abcdeXghij"))
    assert changed == "the first span that differs is one of 5 to 5, now starting with X"
    assert first_difference("span", pinned, items("aXcdefghij")) == "span 1 was b, is X"
