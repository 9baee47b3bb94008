"""Arguments of Graphcore's optimizers and attributes without an effect, with values that they do not take."""

from functools import partial

import pytest

from ipusim.ipu.config import IPUConfig
from ipusim.runs.request.graphcore_options import OTHER_ATTRIBUTES
from tests.effort import in_turn
from tests.programs import hosted_names
from tests.unit.ipu.test_misuse import TRUTH, VALUES, Argument, complaint, of

POSITIVE = (("1",), "num_mini_batches must be a positive number")
V1 = {
    "opt": ((),),
    "num_mini_batches": POSITIVE,
    "verify_usage": (TRUTH,),
}
V2 = {
    "opt": ((),),
    "num_mini_batches": POSITIVE,
    "offload_weight_update_variables": (("None", *TRUTH),),
    "replicated_optimizer_state_sharding": (("None", *TRUTH),),
    "dtype": (("None", "function"),),
    "reduction_method": ((), "^Cannot parse .* as one of GradientAccumulationReductionMethod"),
}


def arguments(names):
    """Every argument of the optimizers."""

    def sgd():
        return names.tf.train.GradientDescentOptimizer(0.1)

    made, counted = names.ipu.optimizers, {"opt": sgd, "num_mini_batches": lambda: 4}
    return [
        *of("ShardedOptimizer", made.ShardedOptimizer, {"optimizer": sgd}, optimizer=((),)),
        *of("CrossReplicaOptimizer", made.CrossReplicaOptimizer, {"opt": sgd}, opt=((),)),
        *of("GradientAccumulationOptimizer", made.GradientAccumulationOptimizer, counted, **V1),
        *of("GradientAccumulationOptimizerV2", made.GradientAccumulationOptimizerV2, counted, **V2),
        *of("CrossReplica", made.CrossReplicaGradientAccumulationOptimizer, counted, **V1),
        *of("CrossReplicaV2", made.CrossReplicaGradientAccumulationOptimizerV2, counted, **V2),
    ]


#: Values that an attribute takes by its type.
TAKEN = {
    "int": ("0", "1", "huge"),
    "bool": TRUTH,
    "dict": ("empty dictionary", "dictionary"),
    "str": ("text", "empty text"),
}


def setting(path, value):
    *above, name = path.split(".")
    config = place = IPUConfig()
    for each in above:
        place = getattr(place, each)
    setattr(place, name, value)
    config.check()


def attribute(path):
    legal = TAKEN.get(IPUConfig().get_attribute_metadata(path).type, ())
    if path.endswith("group_size"):
        legal = ("1", "huge")  # whether it divides the replicas is known when there is a device
    text = f"^Trying to set {path} to "
    return Argument(f"IPUConfig.{path}", "", partial(setting, path), legal, text)


ATTRIBUTES = [
    *(attribute(row.name) for row in OTHER_ATTRIBUTES),
    *of(
        "get_attribute_metadata", IPUConfig().get_attribute_metadata, {}, attr=((), "^Could not get attribute metadata")
    ),
]


def wrong(argument):
    """What is told otherwise of the values that an argument does not take."""
    values = in_turn([*VALUES], argument.label + argument.name)
    return {value: told for value in values if (told := complaint(argument, value))}


@pytest.mark.parametrize("argument", ATTRIBUTES, ids=lambda each: f"{each.label} {each.name}")
def test_what_an_attribute_does_not_take_is_refused_by_name(argument):
    assert wrong(argument) == {}


def test_what_an_argument_does_not_take_is_refused_by_name():
    with hosted_names() as names:
        found = {f"{each.label} {each.name}": wrong(each) for each in arguments(names)}
        assert len(found) == 2 + 2 * (len(V1) + len(V2))
        assert {label: told for label, told in found.items() if told} == {}


def test_misuse_in_its_own_words():
    with hosted_names() as names:
        made, adam = names.ipu.optimizers, names.tf.train.AdamOptimizer()
        with pytest.raises(ValueError, match="because verify_usage is True, got Adam: Gradient"):
            made.GradientAccumulationOptimizer(adam, 4)
        with pytest.raises(ValueError, match=r"dtype: expected a floating-point dtype .* got 'int32'"):
            made.GradientAccumulationOptimizerV2(adam, 4, dtype="int32")
