"""A function under the decorator is a schedule: in scenarios by its name, and called for an Order."""

import pytest

from ipusim import Order, Shape, run, schedule, show
from ipusim.base.errors import OptionError, PlanError, ProgramError
from ipusim.pipeline.plan import Sync
from ipusim.schedules import registry
from ipusim.schedules.features import Feature

SHAPE = Shape(mapping=(0, 1), micro_batches=2)
STAGES = [{"name": name, "forward": 1000, "backward": 2000} for name in ("first", "last")]
TIMED = {"system": {"name": "free"}, "pipeline": {"gradient_accumulation_count": 4, "stages": STAGES}}
RIGHT = {0: ["F0.0", "F0.1", "B0.0", "B0.1"], 1: ["F1.0", "B1.0", "F1.1", "B1.1"]}


@pytest.fixture(autouse=True)
def _own_registry():
    with registry.temporarily():
        yield


def all_forward_first(shape: Shape) -> Order:
    """All forward passes, then all backward passes.

    More lines are no summary.
    """
    passes = {
        ipu: [f"{kind}{stage}.{number}" for kind in "FB" for number in range(shape.micro_batches)]
        for stage, ipu in enumerate(shape.mapping)
    }
    return Order.from_passes("mine", shape, passes)


def test_a_decorated_function_runs_as_gpipe_and_is_called_for_its_order():
    made = schedule(all_forward_first)
    assert made is registry.find("all_forward_first")
    assert made.summary == "All forward passes, then all backward passes."
    assert made(SHAPE) == all_forward_first(SHAPE)
    changes = {"pipeline": {"schedule": "all_forward_first", "sync": "point_to_point"}}
    theirs = {"pipeline": {"schedule": "gpipe", "sync": "point_to_point"}}
    assert run(TIMED, changes=changes).summary.makespan_cycles == run(TIMED, changes=theirs).summary.makespan_cycles


def test_options_are_those_of_a_schedule_and_a_later_definition_counts():
    schedule(all_forward_first)
    options = {"syncs": ["point_to_point"], "supports": ["training", "several IPUs"], "multiple": lambda _: 2}
    made = schedule(name="all_forward_first", summary="again", **options)(all_forward_first)
    assert made is registry.find("all_forward_first")
    assert (made.summary, made.syncs, made.states_sync) == ("again", (Sync.POINT_TO_POINT,), True)
    assert (made.supports, made.count_step(SHAPE)) == ({Feature.TRAINING, Feature.SEVERAL_IPUS}, 2)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"syncs": "lock_step"}, "syncs: expected some of lock_step, point_to_point, got 'lock_step'"),
        ({"syncs": [5]}, "syncs: expected some of lock_step, point_to_point, got [5]"),
        ({"syncs": [[]]}, "syncs: expected some of lock_step, point_to_point, got [[]]"),
        ({"supports": ["x"]}, "supports: expected some of training, inference"),
        ({"name": "gpipe"}, "a schedule named 'gpipe' exists already"),
        ({"name": "A"}, "name: expected a name of at most 64 lower-case letters"),
        ({"multiple": 2}, "multiple: expected a function, got 2"),
    ],
)
def test_a_wrong_option_is_named(options, text):
    with pytest.raises(ProgramError) as error:
        schedule(**options)(all_forward_first)
    assert str(error.value).startswith(text)


def test_an_object_that_cannot_be_called_is_no_schedule():
    with pytest.raises(ProgramError, match=r"^schedule: expected a function from a shape to an Order, got 5$"):
        schedule(5)


def test_an_order_is_shown_in_either_sync_mode(capsys):
    order = Order.from_passes("mine", SHAPE, RIGHT)
    show(order)
    assert capsys.readouterr().out.splitlines()[3:] == [
        "  0  F0.0 | .",
        "  1  F0.1 | F1.0",
        "  2  .    | B1.0 F1.1",
        "  3  B0.0 | B1.1",
        "  4  B0.1 | .",
    ]
    show(order, "point_to_point")
    assert capsys.readouterr().out.splitlines()[3:7] == [
        "  0  F0.0 | .",
        "  1  F0.1 | F1.0",
        "  2  .    | B1.0",
        "  3  B0.0 | F1.1",
    ]
    with pytest.raises(OptionError, match=r"^sync: expected lock_step or point_to_point, got 'x'$"):
        show(order, "x")


@pytest.mark.parametrize("sync", ["lock_step", "point_to_point"])
def test_an_order_that_breaks_a_rule_is_not_shown(sync, capsys):
    with pytest.raises(PlanError, match=r"B1\.1 never runs"):
        show(Order.from_passes("mine", SHAPE, RIGHT | {1: RIGHT[1][:-1]}), sync)
    assert capsys.readouterr().out == ""


def test_an_order_of_another_shape_is_refused():
    made = schedule(name="mine")(lambda _: Order.from_passes("mine", SHAPE, RIGHT))
    with pytest.raises(PlanError, match=r"^schedule 'mine': expected an Order of micro_batches 4, got one of 2$"):
        made(Shape(mapping=(0, 1), micro_batches=4))
