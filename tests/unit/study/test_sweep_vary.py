"""What --vary takes: lists and ranges, crossed or side by side, and what it refuses."""

import re

import pytest

from ipusim.app.sweep.vary import Axis, axes_of, axis_of, names_of, parse_axis, points_of
from ipusim.base.errors import OptionError

COUNT = "pipeline.gradient_accumulation_count"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("16,32,64", (16, 32, 64)),
        ("8..256x2", (8, 16, 32, 64, 128, 256)),
        ("8..200x2", (8, 16, 32, 64, 128)),
        ("8..64+8", (8, 16, 24, 32, 40, 48, 56, 64)),
        ("4, 8..32x2 ,100", (4, 8, 16, 32, 100)),
        ("7..7+1", (7,)),
        ("0.1..0.5+0.1", (0.1, 0.2, 0.3, 0.4, 0.5)),
        ("1e-3..1x10", (0.001, 0.01, 0.1, 1.0)),
        ("-2..2+2", (-2, 0, 2)),
        ("grouped,interleaved", ("grouped", "interleaved")),
        ("mine.py:gpipe", ("mine.py:gpipe",)),
        ("[0, 1, 0],[0, 1, 2]", ([0, 1, 0], [0, 1, 2])),
        ("{type: sgd, learning_rate: 0.1},none", ({"type": "sgd", "learning_rate": 0.1}, "none")),
        ("1.2 ms, 2 ms", ("1.2 ms", "2 ms")),
        ("true,null", (True, None)),
        ("'8..16x2'", (8, 16)),
        ("../rates.yaml", ("../rates.yaml",)),
    ],
)
def test_values_are_yaml_and_ranges(text, values):
    axis = parse_axis(f"{COUNT}={text}")
    assert axis == Axis(COUNT, values)
    assert [type(value) for value in axis.values] == [type(value) for value in values]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (COUNT, f"vary: expected PATH=VALUES, such as {COUNT}=16,32,64, got '{COUNT}'"),
        ("=8", "vary: expected PATH=VALUES, such as "),
        (f"{COUNT}=", f"vary: {COUNT}: expected values, such as 16,32,64 or a range, got none"),
        (f"{COUNT}=8..64", "expected a range such as 8..256x2 (8, 16, 32 and so on up to 256) or 8..64+8"),
        (f"{COUNT}=8...64x2", "expected a range such as 8..256x2"),
        (f"{COUNT}=8..64x٢", "expected a range such as 8..256x2"),
        (f"{COUNT}=64..8x2", "expected a range that grows, such as"),
        (f"{COUNT}=8..64x1", "expected a range that grows"),
        (f"{COUNT}=8..64+0", "expected a range that grows"),
        (f"{COUNT}=0..64x2", "expected a range that grows"),
        (f"{COUNT}=1..1000000+1", "expected a range of at most 100000 values, got '1..1000000+1'"),
        (f"{COUNT}=8..64x1.0000001", "expected a range of at most 100000 values, got '8..64x1.0000001'"),
        (f"{COUNT}=1..1e60+1e59", "expected a range within 1e+60 of 0, got '1..1e60+1e59'"),
        (f"{COUNT}=[1,2", "expected values with commas between them, got '[1,2': "),
    ],
)
def test_what_is_no_list_of_values_is_refused(text, told):
    with pytest.raises(OptionError, match=re.escape(told)):
        parse_axis(text)


def test_a_range_in_many_small_steps_is_read_at_once():
    """The exact powers of 1.00001 have 346,575 digits in the end; as numbers they are the same."""
    values = parse_axis(f"{COUNT}=1..2x1.00001").values
    assert (len(values), values[1], values[-1]) == (69316, 1.00001, 1.9999987074267367)


def test_points_are_crossed_with_the_last_axis_first_and_each_value_once():
    axes = axes_of({"a": [1, 2, 1], "b": "x,y"})
    assert points_of(axes, vary_together=False) == ((1, "x"), (1, "y"), (2, "x"), (2, "y"))


def test_points_side_by_side_need_lists_of_one_length():
    assert points_of(axes_of({"a": "1,2", "b": "x,y"}), vary_together=True) == ((1, "x"), (2, "y"))
    with pytest.raises(
        OptionError, match=r"^zip: expected equal numbers of values of all options, got 2 of a, 3 of b$"
    ):
        points_of(axes_of({"a": "1,2", "b": "x,y,z"}), vary_together=True)


def test_options_come_once_and_points_are_bounded():
    with pytest.raises(OptionError, match="expected each option once, got a a second time"):
        points_of([axis_of("a", "1"), axis_of("a", "2")], vary_together=False)
    with pytest.raises(OptionError, match=r"expected at most 100000 points, got 1000000: vary less"):
        points_of(axes_of({"a": "1..1000+1", "b": "1..1000+1"}), vary_together=False)
    with pytest.raises(OptionError, match="expected options to vary, got none"):
        points_of([], vary_together=False)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (COUNT, "gradient_accumulation_count"),
        ("system.name", "system.name"),
        ("pipeline.stages.1.forward", "stages.1.forward"),
        ("pipeline.stages.decoder.forward", "decoder.forward"),
        ("data.shape.0", "shape.0"),
        ("seed", "seed"),
    ],
)
def test_an_axis_goes_by_as_much_of_its_path_as_says_something(path, name):
    assert Axis(path, (1,)).name == name


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (("a.seed", "b.seed", "steps"), ("a.seed", "b.seed", "steps")),
        (("x.a.seed", "y.a.seed", "seed"), ("x.a.seed", "y.a.seed", "seed")),
        (("pipeline.stages.a.forward", "pipeline.stages.b.forward"), ("a.forward", "b.forward")),
    ],
)
def test_axes_of_one_name_go_by_more_of_their_paths(paths, names):
    assert names_of([Axis(path, (1,)) for path in paths]) == names


@pytest.mark.parametrize(
    ("varied", "text"),
    [
        (
            "steps=1,2",
            "vary: expected a mapping from options to values, such as "
            "{\"pipeline.gradient_accumulation_count\": [16, 32, 64]}, got 'steps=1,2'",
        ),
        ({"steps": 8}, "vary: steps: expected values, such as [16, 32, 64], got 8"),
    ],
)
def test_what_varies_nothing_is_refused_with_an_example(varied, text, refused):
    refused(OptionError, text, lambda: axes_of(varied))
