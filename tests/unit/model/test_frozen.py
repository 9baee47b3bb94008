"""Frozen layers: parameters that lie on the IPU and do not learn."""

import numpy as np
import pytest

from ipusim.model.layers.embedding import Embedding, HostEmbedding
from ipusim.model.layers.layers import ActivationLayer, Dense, Flatten
from ipusim.model.layers.losses import SoftmaxCrossEntropy
from ipusim.model.layers.network import NamedLayer, Network
from ipusim.model.layers.residual import Residual
from ipusim.model.layers.tied_projection import TiedProjection
from ipusim.model.learning.adaptive_optimizers import Adam
from ipusim.model.stages.build_stages import build_stages
from ipusim.model.stages.layer_profile import layer_profile
from ipusim.model.stages.stash import saved_bytes
from tests.formulas import split

CEL = NamedLayer("cel", SoftmaxCrossEntropy())
LAYERS = {"a": Dense(6, "tanh"), "b": Dense(5), "c": Dense(4, "relu"), "d": Dense(3)}


def profiles_of(splits, *frozen, layers=LAYERS, shape=(7,)):
    named = tuple(NamedLayer(name, layer) for name, layer in layers.items())
    network = Network(named, shape, CEL, frozenset(frozen))
    stages = build_stages(network, split(network, splits))
    return stages, [layer_profile(stage, 2, 4, 8, True, Adam(0.1)) for stage in stages]


def test_frozen_first_stages_have_no_backward_pass_and_get_no_gradient():
    _, profiles = profiles_of(["b", "c"], "a", "b")
    for profile, elements in zip(profiles, (7 * 6 + 6, 6 * 5 + 5), strict=False):
        assert not profile.has_backward
        assert (profile.parameter_bytes, profile.untrained_bytes) == (0, 4 * elements)
        assert profile.state_bytes == profile.accumulator_bytes == profile.stash_bytes == profile.weight_gradient_bytes
        assert (profile.update, profile.accumulator_tensors, profile.state_bytes) == ((), (), 0)
    assert [profile.gradient_bytes for profile in profiles] == [0, 0, 0]
    _, whole = profiles_of(["b", "c"])
    assert [profile.gradient_bytes for profile in whole] == [0, 4 * 2 * 6, 4 * 2 * 5]
    # The first layer that learns makes no gradient of its input, as that of a first stage does not.
    alone = LAYERS["c"].cost((5,), 2, 4, need_input_gradient=False)
    assert alone.backward in profiles[2].backward
    assert profiles[2].forward == whole[2].forward


def test_a_frozen_layer_behind_one_that_learns_hands_its_gradient_back_alone():
    stages, (profile,) = profiles_of([], "c")
    _, (whole,) = profiles_of([])
    assert stages[0].frozen_names == {"c/W", "c/b"}
    product = LAYERS["c"].cost((5,), 2, 4).halves
    assert product.input in profile.backward
    assert sum(work.macs for work in whole.backward) - sum(work.macs for work in profile.backward) == 2 * 5 * 4
    assert len(whole.backward) - len(profile.backward) == 2  # the sums of two gradients in accumulators
    assert whole.parameter_bytes - profile.parameter_bytes == profile.untrained_bytes == 4 * (5 * 4 + 4)
    assert whole.state_bytes - profile.state_bytes == 2 * profile.untrained_bytes
    assert product.weights not in profile.backward_weights


def test_layers_between_frozen_ones_and_the_first_that_learns_go_without_a_gradient():
    layers = {"a": Dense(6), "bent": ActivationLayer("tanh"), "flat": Flatten(), "d": Dense(3)}
    stages, (first, second) = profiles_of(["flat"], "a", layers=layers)
    assert not first.has_backward
    assert not stages[1].needs_input_gradient
    gradients = {}
    passes = stages[1].bind(stages[1].initial_parameters(0, np.float64))
    _, saved = passes.forward(np.ones((2, 6)), np.zeros(2, int))
    assert passes.backward(saved, None, stages[1].needs_input_gradient, gradients.__setitem__) is None
    assert gradients.keys() == {"d/W", "d/b"}
    assert second.gradient_bytes == 0


def test_what_no_gradient_passes_through_is_not_kept():
    (stage,), _ = profiles_of([], "a", "b")
    (whole,), _ = profiles_of([])
    assert saved_bytes(whole, 2, 4).stash - saved_bytes(stage, 2, 4).stash == 4 * 2 * (7 + 6 + 0)


def test_a_frozen_table_on_the_host_gets_no_gradients():
    layers = {"tokens": HostEmbedding(9, 4), "flat": Flatten(), "d": Dense(3)}
    _, (frozen, _) = profiles_of(["d"], "tokens", layers=layers, shape=(5,))
    _, (learning, _) = profiles_of(["d"], layers=layers, shape=(5,))
    assert (frozen.tables.rows, frozen.tables.gradients) == (learning.tables.rows, 0)
    assert learning.tables.gradients == learning.tables.rows > 0


@pytest.mark.parametrize("use_bias", [True, False])
def test_a_projection_by_a_frozen_table_learns_its_bias_alone(use_bias):
    tied = TiedProjection(9, "tokens", use_bias)
    layers = {"tokens": Embedding(9, 4), "mid": Dense(4), "scores": tied, "flat": Flatten(), "d": Dense(3)}
    (stage,), (profile,) = profiles_of([], "tokens", layers=layers, shape=(5,))
    parameters = stage.initial_parameters(1, np.float64)
    totals = {name: np.zeros_like(array) for name, array in parameters.items() if name not in stage.frozen_names}
    passes = stage.bind(parameters)
    _, saved = passes.forward(np.zeros((2, 5), int), np.zeros(2, int))

    def receive(name, gradient):
        totals[name] += gradient

    passes.backward(saved, None, False, receive, totals)
    bias = {"scores/b"} if use_bias else set()
    assert {name for name, total in totals.items() if total.any()} == bias | {"mid/W", "mid/b", "d/W", "d/b"}
    assert totals.keys() == {name for name in stage.uses if name != "tokens/W"}
    assert profile.untrained_bytes == 4 * 9 * 4


def test_a_frozen_block_is_frozen_with_all_that_is_in_it():
    block = Residual((NamedLayer("up", Dense(8)), NamedLayer("down", Dense(6))))
    stages, profiles = profiles_of(["b"], "block", layers={"a": Dense(6), "block": block, "b": Dense(3)})
    assert stages[0].frozen_names == {"block/up/W", "block/up/b", "block/down/W", "block/down/b"}
    macs = sum(work.macs for work in profiles[0].backward)
    assert macs == 2 * (7 * 6 + 6 * 8 + 8 * 6)  # of a the kernel's gradient, of the block those of its inputs
