"""Kernels of weight updates, against eager TensorFlow: three updates each."""

import numpy as np
import pytest

from tests.golden.graph.eager import check_graph
from tests.golden.graph.values import drawn, positive, whole
from tests.programs import tensorflow

HALF, SMALL, RATE = np.float32(0.5), np.float32(1e-3), np.float32(0.1)
#: Attributes of operations with variants.
NESTEROV = [{"use_nesterov": flag} for flag in (False, True)]
UPDATE_SLOTS = [{"update_slots": flag} for flag in (False, True)]
#: Names of slots, and other arguments of each operation, with the variants that its attributes make.
RULES = {
    "ResourceApplyGradientDescent": ([], {"alpha": RATE}, [{}]),
    "ResourceApplyMomentum": (["accum"], {"lr": RATE, "momentum": HALF}, NESTEROV),
    "ResourceApplyKerasMomentum": (["accum"], {"lr": RATE, "momentum": HALF}, NESTEROV),
    "ResourceApplyAdam": (
        ["m", "v"],
        {
            "beta1_power": HALF,
            "beta2_power": HALF,
            "lr": RATE,
            "beta1": HALF,
            "beta2": np.float32(0.9),
            "epsilon": SMALL,
        },
        NESTEROV,
    ),
    "ResourceApplyRMSProp": (["ms", "mom"], {"lr": RATE, "rho": HALF, "momentum": HALF, "epsilon": SMALL}, [{}]),
    "ResourceApplyCenteredRMSProp": (
        ["mg", "ms", "mom"],
        {"lr": RATE, "rho": HALF, "momentum": HALF, "epsilon": np.float32(2)},
        [{}],
    ),
    "ResourceApplyAdagrad": (["accum"], {"lr": RATE}, UPDATE_SLOTS),
    "ResourceApplyAdagradV2": (["accum"], {"lr": RATE, "epsilon": SMALL}, UPDATE_SLOTS),
    "ResourceApplyAdadelta": (["accum", "accum_update"], {"lr": RATE, "rho": HALF, "epsilon": SMALL}, [{}]),
    "ResourceApplyFtrl": (
        ["accum", "linear"],
        {"lr": RATE, "l1": SMALL, "l2": SMALL, "lr_power": np.float32(-0.5)},
        [{}],
    ),
    "ResourceApplyFtrlV2": (
        ["accum", "linear"],
        {"lr": RATE, "l1": HALF, "l2": SMALL, "l2_shrinkage": SMALL, "lr_power": np.float32(-0.5)},
        [{}],
    ),
    "ResourceApplyAdaMax": (
        ["m", "v"],
        {"beta1_power": HALF, "lr": RATE, "beta1": HALF, "beta2": np.float32(0.9), "epsilon": SMALL},
        [{}],
    ),
    "ResourceSparseApplyMomentum": (["accum"], {"lr": RATE, "momentum": HALF}, NESTEROV),
    "ResourceSparseApplyKerasMomentum": (["accum"], {"lr": RATE, "momentum": HALF}, NESTEROV),
    "ResourceSparseApplyAdagrad": (["accum"], {"lr": RATE}, UPDATE_SLOTS),
    "ResourceSparseApplyAdagradV2": (["accum"], {"lr": RATE, "epsilon": SMALL}, UPDATE_SLOTS),
}
IN_GRAPHS = list(RULES)


@pytest.mark.parametrize(("kind", "attributes"), [(kind, each) for kind, rule in RULES.items() for each in rule[2]])
def test_three_updates_give_tensorflows_values(kind, attributes):
    tf = tensorflow()
    slots, arguments, _ = RULES[kind]
    sparse = "Sparse" in kind
    variable = tf.Variable(drawn(5, 3))
    handles = {name: tf.Variable(positive(5, 3, seed=number)) for number, name in enumerate(slots, 1)}
    operation = getattr(tf.raw_ops, kind)

    def function(grad):
        for _ in range(3):
            operation(
                var=variable.handle,
                **{name: slot.handle for name, slot in handles.items()},
                **arguments,
                **({"indices": whole(1, 3, 1)} if sparse else {}),
                **({"delta": grad} if kind.endswith("Descent") else {"grad": grad}),
                **attributes,
            )
        return variable.read_value()

    grad = drawn(3 if sparse else 5, 3, seed=7)
    check_graph(function, grad, variables=[variable, *handles.values()], rtol=3e-6, atol=1e-6)
