"""What this work tree makes of a few requests is what was recorded of them; and what is changed is named."""

from pathlib import Path

import numpy as np
import pytest

from ipusim.pricing import passes, price
from ipusim.schedules import layout
from tests.oracles.test_pins import _learn_more, _slow_clock, _swapped, wrapped
from tests.replay.comparison import compare, difference
from tests.replay.figures import hashed_array
from tests.replay.record import read, write

SMALL = read(Path(__file__).with_name("small.json.xz"))


def test_what_was_recorded_is_what_runs_come_to():
    differences, new = compare(SMALL)
    assert [str(each) for each in differences] == []
    assert not new, "record it anew, as README.md says"


@pytest.mark.parametrize(
    ("change", "request_name", "first", "parts"),
    [
        (wrapped(price, "pass_cycles", lambda all_: all_ + 1), "gpu_schedules", "costs.passes.(0, 0)", {"timeline"}),
        (wrapped(layout, "lay_out", _swapped), "schedules_four_ipus", "plan.listing", {"plan", "timeline"}),
        (_slow_clock, "schedules_four_ipus", "timeline.columns.start", {"timeline", "summary"}),
        (_learn_more, "tables 000", "learning.", {"learning"}),
    ],
)
def test_a_change_of_the_code_is_named(tmp_path, monkeypatch, change, request_name, first, parts):
    before = SMALL.only(request_name)
    if "learning" in parts:  # whose bits are those of one machine: of this one
        write(tmp_path / "here", before.requests)
        before = read(tmp_path / "here")
    change(monkeypatch)
    try:
        (found,), _ = compare(before)
    finally:
        monkeypatch.undo()
        passes.leaf_cycles.cache_clear()
    assert found.request.endswith(request_name)
    assert found.first.startswith(first), found
    assert parts <= found.others.keys()


def test_new_figures_are_no_difference_and_those_that_are_gone_are():
    was = {"summary.a": 1, "summary.learning.b": "0.1"}
    assert difference("it", was, {**was, "summary.c": 2}, same_machine=True) is None
    assert str(difference("it", was, {"summary.learning.b": "0.1"}, same_machine=True)) == (
        "it: summary.a was 1, is nothing"
    )
    other = {**was, "summary.learning.b": "0.2"}
    assert difference("it", was, other, same_machine=True).first == "summary.learning.b"
    assert difference("it", was, other, same_machine=False) is None
    refused = difference("it", was, {**was, "ended": "refused: why"}, same_machine=True)
    assert (refused.first, refused.was) == ("ended", "nothing")


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint16", ">i8"])
def test_whole_numbers_have_one_hash_whatever_their_width(dtype):
    numbers = np.array([0, 1, 100])
    assert hashed_array(numbers.astype(dtype)) == hashed_array(numbers)
    assert hashed_array(numbers) != hashed_array(numbers.astype(float))
