"""Frozen layers, which lie on the IPU and do not learn, and a table at both ends of a model: who has it, its cost."""

import numpy as np
import pytest

from ipusim.base.errors import ModelError
from ipusim.model.layers.embedding import Embedding, HostEmbedding
from ipusim.model.layers.layers import ActivationLayer, Dense, Flatten
from ipusim.model.layers.losses import SoftmaxCrossEntropy
from ipusim.model.layers.network import NamedLayer, Network
from ipusim.model.layers.residual import Residual
from ipusim.model.layers.tied_projection import TiedProjection
from ipusim.model.learning.adaptive_optimizers import Adam
from ipusim.model.learning.optimizers import SGD
from ipusim.model.stages.build_stages import build_stages
from ipusim.model.stages.layer_profile import layer_profile
from ipusim.model.stages.not_finite import origin
from ipusim.model.stages.stash import saved_bytes
from ipusim.runs.execute import execute
from ipusim.runs.problems import RequestError
from tests.formulas import split
from tests.scenarios import job_from

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


def network(head=None):
    named = (
        NamedLayer("tokens", Embedding(5, 3)),
        NamedLayer("hidden", Dense(3)),
        NamedLayer("head", head or TiedProjection(5, "tokens")),
    )
    return Network(named, (4,))


def scenario(**more):
    return {
        "system": {"name": "bow_pod16", "auto_select_ipus": 4, "enable_remote_buffers": True},
        "data": {"type": "synthetic_tokens", "length": 4, "vocabulary": 5, "samples": 40, "hold_out": 8},
        "model": {
            "layers": [
                {"name": "tokens", "type": "embedding", "input_dim": 5, "output_dim": 3},
                {"name": "hidden", "type": "dense", "units": 3},
                {"name": "head", "type": "tied_projection", "embedding": "tokens", "units": 5},
                {"name": "cel", "type": "softmax_cross_entropy"},
            ]
        },
        "pipeline": {
            "splits": ["hidden", "head"],
            "device_mapping": [0, 1, 0],
            "gradient_accumulation_count": 6,
            "offload_weight_update_variables": True,
            **more.pop("pipeline", {}),
        },
        "optimizer": {"type": "sgd", "learning_rate": 0.1},
        "precision": "float64",
        **more,
    }


def test_a_head_of_itself_is_refused():
    with pytest.raises(ModelError, match=r"got 'head' .*\(these are tokens, hidden\)"):
        network(TiedProjection(5, "head"))


def test_the_table_is_the_embeddings_in_every_stage():
    stages = build_stages(network(), [["tokens"], ["hidden"], ["head"]])
    first, _, last = (stage.initial_parameters(3, np.float64) for stage in stages)
    assert list(last) == ["tokens/W", "head/b"]
    np.testing.assert_array_equal(last["tokens/W"], first["tokens/W"])
    assert [stage.shared_names for stage in stages] == [(), (), ("tokens/W",)]
    assert [layer_profile(stage, 2, 4).parameter_bytes for stage in stages] == [4 * 15, 4 * 12, 4 * 5]
    (whole,) = build_stages(network(), [["tokens", "hidden", "head"]])
    assert layer_profile(whole, 2, 4).parameter_bytes == 4 * (15 + 12 + 5)
    assert list(whole.initial_parameters(3, float)) == ["tokens/W", "hidden/W", "hidden/b", "head/b"]


def test_each_use_adds_a_gradient_and_one_stage_updates():
    """Adding up is work of the stage whose backward pass it ends: of both uses in one stage twice."""
    table = 15
    stages = build_stages(network(), [["tokens"], ["hidden"], ["head"]])
    profiles = [layer_profile(stage, 2, 4, optimizer=SGD(0.1)) for stage in stages]
    assert [work.vector.elementwise for work in profiles[0].backward[-1:]] == [table]
    assert [work.vector.elementwise for work in profiles[2].backward[-2:]] == [table, 5]
    assert [work.vector.elementwise for work in profiles[0].update] == [2 * table]
    assert [work.vector.elementwise for work in profiles[2].update] == [2 * 5]
    (whole,) = build_stages(network(), [["tokens", "hidden", "head"]])
    profile = layer_profile(whole, 2, 4, optimizer=SGD(0.1))
    assert [work.vector.elementwise for work in profile.backward[-5:]] == [table, 9, 3, 5, table]
    assert [work.vector.elementwise for work in profile.update] == [2 * table, 2 * 9, 2 * 3, 2 * 5]


def test_replicas_cannot_store_parts_of_a_table_of_several_stages():
    with pytest.raises(RequestError, match="expected each parameter in one stage, got tokens/W in several"):
        job_from(scenario(pipeline={"replicated_weight_sharding": True, "offload_weights": True}))
    together = {"splits": ["cel"], "device_mapping": [0, 1], "gradient_accumulation_count": 4}
    parts = {"replicated_weight_sharding": True, "offload_weights": True}
    assert job_from(scenario(pipeline=together | parts)).program.offload.weights


def test_held_out_samples_are_scored_by_the_table_that_was_learnt():
    result = execute(job_from(scenario()))
    weights = result.learning.weights
    data = job_from(scenario()).held_out.dataset
    scores = (weights["tokens/W"][data.x] @ weights["hidden/W"] + weights["hidden/b"]) @ weights["tokens/W"].T
    scores += weights["head/b"]
    chosen = np.take_along_axis(scores, data.y[..., None], axis=-1)[..., 0]
    right = np.mean(np.log(np.exp(scores).sum(axis=-1)) - chosen)
    assert result.learning.evaluations[-1][1].loss == pytest.approx(right, rel=1e-12)


def test_inference_uses_the_table():
    plain = scenario(training=False)
    plain["model"]["layers"].pop()
    del plain["optimizer"], plain["pipeline"]["offload_weight_update_variables"], plain["data"]["hold_out"]
    job = job_from(plain)
    sizes = [profile.parameter_bytes for profile in job.program.stages]
    assert sizes == [8 * 15, 8 * 12, 8 * 5]
    assert execute(job) is not None


def test_the_layer_that_made_a_nan_is_told():
    (stage,) = build_stages(network(), [["tokens", "hidden", "head"]])
    parameters = stage.initial_parameters(0, np.float64)
    parameters["head/b"][2] = np.inf
    assert origin(stage, parameters, np.zeros((1, 4), np.int32), None, None) == "layer 'head'"
