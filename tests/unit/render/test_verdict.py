"""The parts of a run's time in words."""

import pytest

from ipusim.analysis.waterfall import Waterfall
from ipusim.api import Request, assemble, execute
from ipusim.app.render.verdict import verdict_table, waterfall_words
from ipusim.timeline.time_parts import TimePart


def words(**cycles):
    return waterfall_words(Waterfall({part: cycles.get(part.key, 0) for part in TimePart}, 1))


def test_each_part_that_is_negative_has_a_sentence_and_its_own_reason():
    said = words(useful_compute=1_000, imbalance_of_stages=-1, copies_and_sync=-20)
    waits = "shorter than without, because IPUs then wait for each other at other times"
    assert said == (
        "useful compute 102.1%, imbalance of stages -0.1%, copies and sync -2.0%. "
        f"Imbalance of stages below zero: with this part the run is 1 cycle {waits} or as equal parts of all "
        "passes are rounded up to whole cycles. "
        f"Copies and sync below zero: with this part the run is 20 cycles {waits}."
    )


def test_waits_in_the_ramps_and_in_main_are_named_apart_the_largest_first():
    assert words(useful_compute=75, fill_and_drain=5, gaps_in_main=20) == (
        "useful compute 75.0%, gaps in main 20.0%, fill and drain 5.0%"
    )


@pytest.mark.parametrize(
    ("cycles", "mapping", "line"),
    [
        ((1, 4, 2), [0, 1, 2], ("slowest stage", "stage1 on IPU 1, 1.71 times the mean of all stages")),
        ((3, 4, 3), [0, 1, 0], ("busiest IPU", "IPU 0 with stage0 and stage2, 1.20 times the mean of all IPUs")),
        ((3, 6, 3), [0, 1, 0], ("busiest IPU", "none: all IPUs compute equally long")),
        ((2, 2, 1, 1), [0, 1, 0, 2], ("busiest IPU", "IPU 0 with stage0 and stage2, 1.50 times the mean of all IPUs")),
        (
            (3, 3, 1, 1, 2),
            [0, 1, 2, 1, 0],
            ("busiest IPU", "IPU 0 with stage0 and stage4, 1.50 times the mean of all IPUs"),
        ),
        ((2, 2, 2, 2, 1), [0, 1, 0, 1, 2], ("busiest IPU", "IPUs 0 and 1 tie, 1.33 times the mean of all IPUs")),
        ((2, 3), [0, 0], ("slowest stage", "stage1 on IPU 0, 1.20 times the mean of all stages")),
    ],
)
def test_an_ipu_with_several_stages_is_named_by_their_work_together(cycles, mapping, line):
    stages = [
        {"name": f"stage{number}", "forward": 1000 * each, "backward": 2000 * each}
        for number, each in enumerate(cycles)
    ]
    pipeline = {"schedule": "grouped", "gradient_accumulation_count": 120, "stages": stages}
    system = {"name": "free", "auto_select_ipus": 4 if max(mapping) > 1 else 2}
    asked = Request.from_dict({"system": system, "pipeline": pipeline | {"device_mapping": mapping}})
    rows = dict(verdict_table(execute(assemble(asked)).summary).rows)
    assert {name: rows[name] for name in ("slowest stage", "busiest IPU") if name in rows} == dict([line])
