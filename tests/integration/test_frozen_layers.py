"""Runs whose first stages are frozen: what they do backward, and where their weights lie."""

import numpy as np
import pytest

from ipusim.pipeline.ops import Pass
from ipusim.runs.execute import execute
from tests.scenario_data import job_from

SCENARIO = {
    "system": {"name": "m2000", "auto_select_ipus": 4},
    "data": {"type": "synthetic", "shape": [6], "classes": 3, "samples": 32, "seed": 1},
    "model": {
        "layers": [
            *({"name": name, "type": "dense", "units": 5, "trainable": False} for name in ("a", "b")),
            {"name": "c", "type": "dense", "units": 4},
            {"name": "logits", "type": "dense", "units": 3},
            {"name": "cel", "type": "softmax_cross_entropy"},
        ]
    },
    "pipeline": {"splits": ["b", "c", "logits"], "micro_batch_size": 2, "gradient_accumulation_count": 8},
    "optimizer": {"type": "momentum", "learning_rate": 0.1, "momentum": 0.9},
}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"allow_recompute": True},
        {"schedule": "sequential", "allow_recompute": True},
        {"schedule": "zero_bubble_h1"},
        {"schedule": "gpipe", "allow_recompute": True},
    ],
)
def test_frozen_stages_run_forward_alone(more):
    job = job_from(SCENARIO | {"pipeline": SCENARIO["pipeline"] | more})
    run = execute(job)
    backward = {
        stage: sum(job.costs.passes.get((kind, stage), 0) for kind in Pass if kind is not Pass.FORWARD)
        for stage in range(4)
    }
    assert backward[0] == backward[1] == 0 < min(backward[2], backward[3])
    assert [job.program.saved_bytes(stage) for stage in (0, 1)] == [0, 0]
    initial = {name: a for stage in range(4) for name, a in job.workload(0).initial_parameters(stage).items()}
    for name, array in run.learning.weights.items():
        assert np.array_equal(array, initial[name]) == (name[0] in "ab"), name


@pytest.mark.parametrize("option", ["replicated_optimizer_state_sharding", "replicated_weight_sharding"])
def test_frozen_weights_stay_whole_where_replicas_hold_parts_of_others(option):
    own = SCENARIO["pipeline"] | {option: True, "offload_weight_update_variables": True}
    system = SCENARIO["system"] | {
        "auto_select_ipus": 8,
        "name": "pod16",
        "minimum_remote_tensor_size": 1,
        "enable_remote_buffers": True,
    }
    alone = execute(job_from(SCENARIO | {"system": system, "pipeline": SCENARIO["pipeline"]}))
    parts = execute(job_from(SCENARIO | {"system": system, "pipeline": own}))
    for name, array in alone.learning.weights.items():
        np.testing.assert_array_equal(parts.learning.weights[name], array, err_msg=name)
