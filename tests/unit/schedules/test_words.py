"""Schedules written as words: what they lay out, and what is wrong with words."""

import re
from dataclasses import replace

import pytest

from ipusim.base.errors import CountError, PlanError, UnsupportedProgramError
from ipusim.lowering.lower import lower
from ipusim.pipeline.ops import Op, Pass
from ipusim.pipeline.plan import Sync
from ipusim.pipeline.shape import PlanShape
from ipusim.schedules.registry import find
from ipusim.schedules.repeating import with_period
from ipusim.schedules.words import in_words

#: 1F1B of two stages.
WORDS = {0: ("F0 F0", "B0 F0", "B0 B0"), 1: ("F1 B1", "F1 B1", "F1 B1")}


@pytest.mark.parametrize("count", [2, 3, 9])
def test_words_of_1f1b_are_1f1b(count):
    shape = PlanShape(mapping=(0, 1), micro_batches=count)
    made = in_words("mine", WORDS)
    assert made.lay_out(shape).passes.tolist() == find("1f1b").lay_out(shape).passes.tolist()
    assert made.mapping(2) == (0, 1)
    assert (made.least, made.ramps(shape), made.step(shape)) == (2, 4, 1)


def test_micro_batches_of_each_letter_go_in_order():
    made = in_words("mine", {0: ("F0 F0 I0", "", "W0 I0 W0")})
    order = made.lay_out(PlanShape(mapping=(0,), micro_batches=2))
    texts = [str(Op(Pass(kind), stage, micro_batch)) for _, kind, stage, micro_batch in order.passes.tolist()]
    assert texts == ["F0.0", "F0.1", "I0.0", "W0.0", "I0.1", "W0.1"]
    assert made.period is None


def test_words_without_a_period_that_repeat_themselves_are_cut():
    shape = PlanShape(mapping=(0, 1), micro_batches=40)
    made = with_period(in_words("mine", {0: ("F0 B0 " * 40, "", ""), 1: ("F1 B1 " * 40, "", "")}), shape)
    assert (made.period(shape), made.ramps(shape)) == (1, 40)
    few = made.lay_out(replace(shape, micro_batches=10))
    assert few.passes.tolist() == [
        [ipu, kind, ipu, micro_batch] for ipu in (0, 1) for micro_batch in range(10) for kind in (0, 1)
    ]


@pytest.mark.parametrize("count", [2, 3, 7])
def test_bars_end_time_steps(count):
    words = {0: ("F0 |", "F0 | B0 |", "F0 | B0 | B0"), 1: ("|", "F1 I1 | W1 |", "F1 I1 | F1 B1 | W1")}
    made = in_words("mine", words)
    assert made.syncs[0] is Sync.LOCK_STEP
    shape = PlanShape(mapping=(0, 1), micro_batches=count)
    order = made.lay_out(shape)
    cells = lower(order, Sync.LOCK_STEP).cells()
    more = 2 * (count - 2)
    assert order.emitted == 4 + more
    found = {(step, ipu): " ".join(map(str, ops)) for (step, ipu), ops in cells.items() if step <= 2 or step > more}
    assert {key: found[key] for key in [(0, 0), (1, 0), (1, 1)]} == {
        (0, 0): "F0.0",
        (1, 0): "F0.1",
        (1, 1): "F1.0 I1.0",
    }
    last = [found.get((step + more, ipu), "") for step in (2, 3) for ipu in (0, 1)]
    before, end = count - 2, count - 1
    assert last == [f"B0.{before}", f"F1.{end} B1.{end}", f"B0.{end}", f"W1.{before}"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({0: ("F0", "", "B0 B0")}, "mine: expected each letter equally often outside periods, got [1, 2] times"),
        ({0: ("F0", "F0", "B0")}, "mine, IPU 0: expected each of its letters once in the period"),
        ({**WORDS, 1: ("F1 B1", "", "F1 B1")}, "mine, IPU 1: expected each of its letters once in the period"),
        ({0: ("F٠", "", "B0")}, "mine, IPU 0: expected letters such as F0, B0, I1 or W1, got 'F٠'"),
        ({0: ("F0", "B0")}, "mine, IPU 0: expected words before, in and after a period, got 2 of them"),
        ({0: ("F0", "", "B0"), 1: ("F2", "", "B2")}, "mine: expected each stage from 0 up on one IPU, got [0, 2]"),
        (
            {0: ("F0 |", "", "| B0"), 1: ("| |", "", "F1 B1")},
            "mine: expected equal numbers of time-steps of all IPUs before the period, got 1 of IPU 0, 2 of IPU 1",
        ),
        (
            {0: ("F0 |", "F0 | B0 |", "B0"), 1: ("|", "F1 B1 |", "F1 B1")},
            "mine: expected equal numbers of time-steps of all IPUs in the period, got 2 of IPU 0, 1 of IPU 1",
        ),
    ],
)
def test_a_mistake_in_words_is_named(words, text):
    with pytest.raises(PlanError, match=f"^{re.escape(text)}$"):
        in_words("mine", words)


def test_another_mapping_and_too_few_micro_batches_are_refused():
    made = in_words("mine", WORDS)
    with pytest.raises(CountError, match=r"^expected 2 micro-batches or more, as in mine, got 1$"):
        made.lay_out(PlanShape(mapping=(0, 1), micro_batches=1))
    with pytest.raises(UnsupportedProgramError, match=r"^expected stages on IPUs 0, 1, as in mine, got 1, 0$"):
        made.lay_out(PlanShape(mapping=(1, 0), micro_batches=2))
    once = in_words("mine", {0: ("F0", "", "B0")})
    with pytest.raises(CountError, match=r"^expected 1 micro-batches, as in mine, got 2$"):
        once.lay_out(PlanShape(mapping=(0,), micro_batches=2))
