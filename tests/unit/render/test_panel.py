"""What stands beside the rows of a picture."""

from dataclasses import replace

import pytest

from ipusim.app.render.panel import names_width, stage_names
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
