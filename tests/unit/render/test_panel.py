"""What stands beside the rows of a picture."""

import json
from dataclasses import replace

import numpy as np
import pytest

from ipusim.analysis.phases import phases_of
from ipusim.app.render.content import content
from ipusim.app.render.legend import legend_entries
from ipusim.app.render.panel import names_width, row_names, stage_names
from ipusim.app.render.window import Window
from ipusim.runs.execute import execute
from ipusim.timeline.timeline import Timeline
from tests.scenarios import job_from, timed
from tests.timelines import timeline_by_hand

LAYERS = ("flatten, dense256, dense128, dense64", "dense32, logits, softmax_ce", "", "head")


def named(stages, mapping, layers=LAYERS):
    made = timeline_by_hand(mapping=mapping, count=24)
    return made.with_info(replace(made.info, stages=stages, layers=layers[: len(stages)]))


@pytest.mark.parametrize(
    ("stages", "points", "expected"),
    [
        (("stage0", "stage1"), 30, ["flatten to dense64", "dense32 to softmax_ce"]),
        (("stage1", "stage2"), 30, ["stage1\nflatten to dense64", "stage2\ndense32 to softmax_ce"]),
        (("enc", "dec", "loss", "head"), 30, ["enc\nflatten to dense64", "dec\ndense32 to softmax_ce", "loss", "head"]),
        (("enc", "dec"), 20, ["enc: flatten to dense64", "dec: dense32 to softma…"]),
        (("enc", "dec"), 12, ["", ""]),
    ],
)
def test_a_stage_alone_on_its_ipu_is_named_with_its_first_and_last_layer(stages, points, expected):
    made = named(stages, tuple(range(len(stages))))
    assert stage_names(made, points) == expected
    assert names_width(made, points) < 100


def test_several_stages_on_an_ipu_have_their_names_alone():
    assert stage_names(named(("a", "b", "c"), (0, 1, 0)), 30) == ["0 a, 2 c", "1 b\ndense32 to softmax_ce"]


def test_several_stages_whose_names_have_no_room_have_their_numbers():
    long = tuple(f"long_encoder{number}" for number in range(4))
    assert stage_names(named(long, (0, 1, 0, 1)), 30) == ["stages 0, 2", "stages 1, 3"]


def test_names_that_differ_in_what_they_end_in_keep_their_ends():
    long = tuple(f"transformer_encoder_layer_{number}" for number in range(2))
    names = stage_names(named(long, (0, 1), ("", "")), 30)
    assert [(name[:11], name[-8:], "…" in name) for name in names] == [
        ("transformer", f"_layer_{number}", True) for number in range(2)
    ]


def test_a_slow_ipu_is_marked_in_the_run_and_in_its_file(tmp_path):
    slow = [{"ipu": 1, "slower": 1.5}, {"ipu": 2, "slower": 1}, {"host": "infeed", "slower": 2}]
    timeline = execute(job_from(timed(4) | {"disturbances": slow})).timeline
    assert row_names(timeline) == ["IPU 0", "IPU 1, slow", "IPU 2", "IPU 3"]
    timeline.save(tmp_path / "slow.npz")
    assert row_names(Timeline.load(tmp_path / "slow.npz")) == row_names(timeline)
    execute(job_from(timed(4))).timeline.save(tmp_path / "even.npz")
    with np.load(tmp_path / "even.npz") as file:
        assert "slow_ipus" not in json.loads(file["info"].tobytes())


def test_the_legend_names_the_line_at_the_end_of_a_phase():
    timeline = execute(job_from(timed(2))).timeline
    phases = phases_of(timeline)

    def named(start, end):
        return "end of a phase" in {
            entry.text for entry in legend_entries([content(timeline, Window(start, end), 9.0)])
        }

    assert named(0, phases[0].end + 1)
    assert not named(phases[0].start, phases[0].end)
