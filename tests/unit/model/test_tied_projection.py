"""A table at both ends of a model: who has it, where it may be, and what runs on it beside training."""

import numpy as np
import pytest

from ipusim.base.errors import ModelError
from ipusim.model.layers.embedding import Embedding
from ipusim.model.layers.layers import Dense
from ipusim.model.layers.network import NamedLayer, Network
from ipusim.model.layers.tied_projection import TiedProjection
from ipusim.model.learning.optimizers import SGD
from ipusim.model.stages.build_stages import build_stages
from ipusim.model.stages.layer_profile import layer_profile
from ipusim.model.stages.not_finite import origin
from ipusim.runs.execute import execute
from ipusim.runs.problems import RequestError
from tests.scenarios import job_from


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
