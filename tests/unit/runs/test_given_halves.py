"""A scenario may give the cycles of either half of a backward pass, and the bytes between them."""

from __future__ import annotations

import pytest

from tests.places import SCENARIOS

TIMED = """
system: {name: free, auto_select_ipus: 2}
pipeline:
  gradient_accumulation_count: 4
  stages:
    - {name: a, forward: 10, backward: 21, stash_bytes: 5 B}
    - {name: b, forward: 10, backward: 20, backward_input: 13, backward_weights: 14, rest_bytes: 3 B}
"""
TUTORIAL = (SCENARIOS / "tutorial_step3_pipelining.yaml").read_text()


def test_stages_known_by_their_cost(load):
    a, b = load(TIMED).program.stages
    assert (a.halves, a.between_halves_bytes) == ((11, 10), 5)
    assert (b.halves, b.between_halves_bytes) == ((13, 14), 3)
    assert (a.backward, b.backward) == (21, 20)


@pytest.mark.parametrize(("given", "halves"), [("", (10, 10)), (", backward_weights: 4", (10, 4))])
def test_given_cycles_take_the_place_of_counted_work(load, given, halves):
    counted = load(TUTORIAL).program.stages
    assert all(isinstance(half, tuple) for each in counted for half in each.halves)
    cycles = f"pipeline.cycles=[{{forward: 7, backward: 20{given}}}, {{forward: 7, backward: 20{given}}}]"
    assert [each.halves for each in load(TUTORIAL, cycles).program.stages] == [halves] * 2


def test_inference_has_no_halves(load):
    text = TIMED.replace("backward: 21, ", "").replace("backward: 20, ", "")
    assert [each.halves for each in load(text, "training=false").program.stages] == [(0, 0), (0, 0)]
