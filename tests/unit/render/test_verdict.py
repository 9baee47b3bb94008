"""The parts of a run's time in words."""

from ipusim.analysis.waterfall import Waterfall
from ipusim.app.render.verdict import waterfall_words
from ipusim.timeline.time_parts import TimePart


def words(**cycles):
    return waterfall_words(Waterfall({part: cycles.get(part.key, 0) for part in TimePart}, 1))


def test_each_part_that_is_negative_has_a_sentence_and_its_own_reason():
    said = words(useful_compute=1_000, imbalance_of_stages=-1, copies_and_sync=-20)
    waits = "with this part the run takes less time than without, as IPUs then wait for each other at other times"
    assert said == (
        "useful compute 102.1%, imbalance of stages -0.1%, copies and sync -2.0%. "
        f"Imbalance of stages 1 cycle below zero: {waits} or as equal parts of all passes are rounded up to whole "
        f"cycles. Copies and sync 20 cycles below zero: {waits}."
    )


def test_waits_in_the_ramps_and_in_main_are_named_apart_the_largest_first():
    assert words(useful_compute=75, fill_and_drain=5, gaps_in_main=20) == (
        "useful compute 75.0%, gaps in main 20.0%, fill and drain 5.0%"
    )
