import pytest

from ipusim.base import foreign_words
from ipusim.base.foreign_words import FOREIGN, spelling_key
from ipusim.base.near_names import all_nearest, did_you_mean, equal_name, list_names, nearest
from ipusim.base.units import UNITS
from ipusim.hardware.generations import GENERATIONS
from ipusim.hardware.machines import MACHINES
from ipusim.runs.request.schema import json_schema
from ipusim.schedules.registry import names as schedule_names

SCHEDULES = tuple(schedule_names())


def test_the_nearest_name_in_any_case_and_as_it_is_written():
    assert nearest("GRUOPED", ["sequential", "Grouped", "grouping"]) == "Grouped"
    assert nearest("x", ["sequential"]) is None
    assert nearest(3, ["3"]) is None


def test_the_hint_as_a_word_or_quoted_or_nothing():
    assert did_you_mean("snak", ("ZIGZAG", "SNAKE")) == "; did you mean SNAKE?"
    assert did_you_mean("snak", ("ZIGZAG", "SNAKE"), quoted=True) == "; did you mean 'SNAKE'?"
    assert did_you_mean("hoof", ("ZIGZAG", "SNAKE")) == ""


@pytest.mark.parametrize(
    ("foreign", "names", "ours"),
    [
        ("1F1B", SCHEDULES, "1f1b"),
        ("PipeDream-Flush", SCHEDULES, "1f1b"),
        ("linear", ("flatten", "dense", "identity"), "dense"),
        ("linear", ("relu", "identity"), "identity"),
        ("batchnorm", ("layer_norm", "batch_norm"), "batch_norm"),
        ("mk2", MACHINES, "m2000"),
        ("mk2", ("GC2", "GC200", "BOW"), "GC200"),
        ("accumulation_steps", ("steps", "gradient_accumulation_count"), "gradient_accumulation_count"),
        ("Ghz", ("MHz", "GHz"), "GHz"),
        ("gbps", ("B/s", "GB/s", "Gbit/s"), "GB/s"),
    ],
)
def test_what_others_call_a_thing_is_near_its_name_here(foreign, names, ours):
    assert nearest(foreign, names) == equal_name(foreign, names) == ours
    assert nearest(foreign, ("x", "y")) is None


def test_a_name_of_ours_goes_before_a_foreign_word_and_that_before_one_that_looks_alike():
    assert nearest("Linear", ("dense", "linear")) == "linear"
    assert nearest("conv", ("convert", "conv1d", "conv2d")) == "conv2d"
    assert (equal_name("grouqed", SCHEDULES), nearest("grouqed", SCHEDULES)) == (None, "grouped")


def test_every_word_that_foreign_ones_lead_to_is_a_name_here():
    keys, names = (
        set(),
        {
            *MACHINES,
            *(ipu.name for ipu in GENERATIONS),
            *SCHEDULES,
            *(each for unit, _ in UNITS.values() for each in unit),
        },
    )

    def walk(node):
        if isinstance(node, dict):
            keys.update(node.get("properties", ()))
            names.update(node.get("x-names", ()))
            names.update([node["const"]] if "const" in node else ())
        for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            walk(each)

    walk(json_schema())
    assert set(FOREIGN) - keys - names == set()
    for ours, foreign in FOREIGN.items():
        for word in foreign.split():
            assert ours in foreign_words.keys_for(word), word
            assert spelling_key(word) != spelling_key(ours), word


@pytest.mark.parametrize(
    ("wrong", "names", "near"),
    [
        ("pod32", MACHINES, ("pod16", "pod64")),
        ("bow_pod32", MACHINES, ("bow_pod16", "bow_pod64")),
        ("pod1024", MACHINES, ("pod256",)),
        ("pod8", MACHINES, ("pod16",)),
        ("pod61", MACHINES, ("pod16", "pod64")),
        ("pod" + "9" * 5000, MACHINES, ("pod256",)),
        ("ZICKZACK", ("AUTO", "ZIGZAG", "SNAKE", "HOOF"), ("ZIGZAG",)),
        ("", ("a", "b"), ()),
        ("_", ("a_b",), ()),
        ("q", ("x", "y"), ()),
    ],
)
def test_the_nearest_are_told_by_what_they_are(wrong, names, near):
    assert tuple(all_nearest(wrong, names)) == near


def test_all_names_that_are_equally_near_are_told():
    names = ("beta_1", "beta_2", "epsilon")
    assert did_you_mean("beta_", names) == "; did you mean beta_1 or beta_2?"
    assert did_you_mean("beta_", names, quoted=True) == "; did you mean 'beta_1' or 'beta_2'?"
    assert did_you_mean("bet_1", ["bett_1", "bat_1", "bet1_1"]) == "; did you mean bett_1, bet1_1 or bat_1?"
    assert len(all_nearest("dense", [f"dense{number}" for number in range(10)])) == 5


def test_of_many_names_the_nearest_are_listed_and_the_others_counted():
    names = [f"layer{number}" for number in range(40)]
    assert list_names(names[:18], "layer3") == ", ".join(names[:18])
    assert list_names(names, "layer31", ", see there").startswith("layer31, layer1, layer3, layer10, ")
    assert list_names(names, "layer31", ", see there").endswith(" and 28 more, see there")
    assert list_names(names, None) == f"{', '.join(names[:12])} and 28 more"
