"""Every argument of the optimizers and every attribute without an effect, with values that they do not take."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from ipusim.ipu.config import IPUConfig
from ipusim.ipu.optimizers import (
    AdadeltaOptimizer,
    AdagradOptimizer,
    AdamOptimizer,
    CrossReplicaGradientAccumulationOptimizer,
    CrossReplicaGradientAccumulationOptimizerV2,
    FtrlOptimizer,
    GradientAccumulationOptimizer,
    GradientAccumulationOptimizerV2,
    GradientDescentOptimizer,
    IpuOptimizer,
    LAMBOptimizer,
    MomentumOptimizer,
    RMSPropOptimizer,
    ShardedOptimizer,
    Variable,
)
from ipusim.runs.request.graphcore_options import OTHER_ATTRIBUTES
from tests.effort import in_turn
from tests.unit.ipu.test_misuse import TRUTH, VALUES, Argument, complaint, of

RATES = ("0", "1", "1.5", "huge")
DECAYS = ("0",)
HUGE = r"below 1, got 1\.18\d+e\+21$"  # as a floating-point number
NAME = (("text",), "Must specify the optimizer name")
NAME_OR_NONE = (("None", "text"), "Must specify the optimizer name")
POSITIVE = (("1",), "num_mini_batches must be a positive number")


def sgd():
    return GradientDescentOptimizer(0.1)


def variable():
    return Variable("w", np.ones(3), {})


def pairs():
    return [(np.ones(3), variable())]


def loss():
    return np.float32(1)


WRAPPED = {"opt": sgd}
COUNTED = {"opt": sgd, "num_mini_batches": lambda: 4}
V1 = {
    "opt": ((),),
    "num_mini_batches": POSITIVE,
    "verify_usage": (TRUTH,),
    "name": NAME_OR_NONE,
}
V2 = {
    "opt": ((),),
    "num_mini_batches": POSITIVE,
    "offload_weight_update_variables": (("None", *TRUTH),),
    "replicated_optimizer_state_sharding": (("None", *TRUTH),),
    "dtype": (("None", "function"),),
    "reduction_method": ((), "^Cannot parse .* as one of GradientAccumulationReductionMethod"),
    "name": NAME_OR_NONE,
}
COMPUTE = {
    "loss": ((), "^compute_gradients: expected to be called by a pipeline|^stage 'loss'|^loss: expected one tensor"),
    "var_list": (("None", "empty list", "empty tuple"),),
    "gate_gradients": (("0", "1"), "^gate_gradients must be one of"),
    "colocate_gradients_with_ops": (TRUTH,),
    "grad_loss": (("None",),),
}
MINIMIZE = {
    "loss": (("array",), "^stage 'loss'|^loss: expected one tensor"),
    "global_step": (("None",),),
    "var_list": (("None", "empty list", "empty tuple"),),
}
MALFORMED = "^No variables provided|^grads_and_vars: expected pairs"


def empty_loss():
    return np.float32(1) * 1.0


ARGUMENTS = [
    *of(
        "AdamOptimizer",
        AdamOptimizer,
        {},
        learning_rate=(RATES, "(?!)", "learning.rate"),
        beta1=(DECAYS, HUGE, "beta.1|beta1"),
        beta2=(DECAYS, HUGE, "beta.2|beta2"),
        epsilon=(("1", "1.5", "huge"),),
        use_locking=(TRUTH,),
        name=NAME,
    ),
    *of(
        "RMSPropOptimizer",
        RMSPropOptimizer,
        {"learning_rate": lambda: 0.1},
        learning_rate=(RATES, "(?!)", "learning.rate"),
        decay=(DECAYS, HUGE),
        momentum=(RATES,),
        epsilon=(("1", "1.5", "huge"),),
        use_locking=(TRUTH,),
        centered=(TRUTH,),
        name=NAME,
    ),
    *of(
        "AdagradOptimizer",
        AdagradOptimizer,
        {"learning_rate": lambda: 0.1},
        learning_rate=(RATES, "(?!)", "learning.rate"),
        initial_accumulator_value=(("1", "1.5", "huge"), "must be positive|initial accumulator"),
        use_locking=(TRUTH,),
        name=NAME,
    ),
    *of(
        "AdadeltaOptimizer",
        AdadeltaOptimizer,
        {"learning_rate": lambda: 0.1},
        learning_rate=(RATES, "(?!)", "learning.rate"),
        rho=(DECAYS, HUGE),
        epsilon=(("1", "1.5", "huge"),),
        use_locking=(TRUTH,),
        name=NAME,
    ),
    *of(
        "FtrlOptimizer",
        FtrlOptimizer,
        {"learning_rate": lambda: 0.1},
        learning_rate=(("1", "1.5", "huge"), "(?!)", "learning.rate"),
        learning_rate_power=(("0", "-1"), HUGE.replace("below 1", "0 or less"), "learning.rate.power"),
        l1_regularization_strength=(RATES, "(?!)", "l1"),
        use_locking=(TRUTH,),
        name=NAME,
    ),
    *of(
        "LAMBOptimizer",
        LAMBOptimizer,
        {"learning_rate": lambda: 0.1},
        learning_rate=(RATES, "(?!)", "learning.rate"),
        weight_decay_rate=(RATES, "(?!)", "weight.decay"),
        beta_1=(DECAYS, HUGE),
        beta_2=(DECAYS, HUGE),
        epsilon=(("1", "1.5", "huge"),),
        exclude_from_weight_decay=(("None", "empty list", "empty tuple"),),
        name=NAME,
    ),
    *of(
        "MomentumOptimizer",
        MomentumOptimizer,
        {"learning_rate": lambda: 0.1, "momentum": lambda: 0.9},
        use_nesterov=(TRUTH,),
    ),
    *of("IpuOptimizer", IpuOptimizer, WRAPPED, opt=((),), name=NAME_OR_NONE),
    *of("ShardedOptimizer", ShardedOptimizer, {"optimizer": sgd}, optimizer=((),)),
    *of("GradientAccumulationOptimizer", GradientAccumulationOptimizer, COUNTED, **V1),
    *of("GradientAccumulationOptimizerV2", GradientAccumulationOptimizerV2, COUNTED, **V2),
    *of("CrossReplicaGradientAccumulationOptimizer", CrossReplicaGradientAccumulationOptimizer, COUNTED, **V1),
    *of("CrossReplicaGradientAccumulationOptimizerV2", CrossReplicaGradientAccumulationOptimizerV2, COUNTED, **V2),
    *of("compute_gradients", lambda **given: sgd().compute_gradients(**given), {"loss": lambda: empty_loss}, **COMPUTE),
    *of(
        "wrapped compute_gradients",
        lambda **given: IpuOptimizer(sgd()).compute_gradients(**given),
        {"loss": lambda: empty_loss},
        **COMPUTE,
    ),
    *of("minimize", lambda **given: sgd().minimize(**given), {"loss": loss}, **MINIMIZE),
    *of(
        "apply_gradients",
        lambda **given: sgd().apply_gradients(**given),
        {"grads_and_vars": pairs},
        grads_and_vars=((), MALFORMED),
        global_step=(("None",),),
    ),
    *of("apply_gradients to", lambda to: sgd().apply_gradients([(np.ones(3), to)]), {}, to=((), MALFORMED)),
    *of(
        "apply_gradients of",
        lambda gradient: sgd().apply_gradients([(gradient, variable())]),
        {},
        gradient=(
            ("array",),
            "^No gradients provided for any variable|^Gradient must be a Tensor, IndexedSlices, or None",
        ),
    ),
    *of(
        "get_slot",
        lambda **given: sgd().get_slot(**given),
        {"var": variable, "name": lambda: "momentum"},
        var=((),),
        name=(("text", "empty text"),),
    ),
    *of(
        "get_attribute_metadata", IPUConfig().get_attribute_metadata, {}, attr=((), "^Could not get attribute metadata")
    ),
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


ATTRIBUTES = [attribute(row.name) for row in OTHER_ATTRIBUTES]


@pytest.mark.parametrize("argument", [*ARGUMENTS, *ATTRIBUTES], ids=lambda each: f"{each.label} {each.name}")
def test_what_an_argument_does_not_take_is_refused_by_name(argument):
    values = in_turn([*VALUES], argument.label + argument.name)
    wrong = {value: told for value in values if (told := complaint(argument, value))}
    assert wrong == {}


def test_there_are_many_wrong_calls():
    assert sum(len(VALUES) - len(each.legal) for each in [*ARGUMENTS, *ATTRIBUTES]) > 1500


@pytest.mark.parametrize(
    ("action", "kind", "text"),
    [
        (
            lambda: sgd().apply_gradients([(np.ones(2), variable())]),
            ValueError,
            "grads_and_vars: expected a gradient of shape (3,) for 'w', got (2,)",
        ),
        (
            lambda: sgd().apply_gradients([(np.ones(3, np.float32), variable())]),
            TypeError,
            "the gradient of 'w' is float32 and the variable float64: expected gradients of the variable's type, to "
            "which an optimizer of your own casts what was accumulated in another gradient_accumulation_dtype, as in "
            "`gradient.astype(variable.dtype)`",
        ),
        (
            lambda: GradientAccumulationOptimizer(AdamOptimizer(), 4),
            ValueError,
            "opt: expected a GradientDescentOptimizer or a MomentumOptimizer, as verify_usage is True, got Adam: "
            "GradientAccumulationOptimizerV2 takes any optimizer",
        ),
        (
            lambda: GradientAccumulationOptimizerV2(sgd(), 4, dtype="int32"),
            ValueError,
            "dtype: expected a floating-point dtype such as numpy.float32, got 'int32'",
        ),
        (
            lambda: sgd().compute_gradients(lambda: (np.float32(1), np.float32(2))),
            TypeError,
            "loss: expected one tensor of it, got 2",
        ),
    ],
)
def test_misuse_in_its_own_words(action, kind, text, refused):
    refused(kind, text, action)
