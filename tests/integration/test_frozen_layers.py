"""Runs whose first stages are frozen: what they do backward, and where their weights lie."""

import numpy as np
import pytest

from ipusim.analysis.memory import memory_curves
from ipusim.app.scenario import load_job
from ipusim.pipeline.ops import Pass
from ipusim.runs.execute import execute
from tests.programs import PROGRAMS, Ran
from tests.scenarios import SCENARIOS, job_from

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
        {"schedule": "popart", "allow_recompute": True},
    ],
)
def test_frozen_stages_run_forward_alone(more):
    job = job_from(SCENARIO | {"pipeline": SCENARIO["pipeline"] | more})
    run = execute(job)
    curves = memory_curves(run.timeline, job.memory.footprint)
    assert min(int(curve.live_bytes.min()) for curve in curves) == 0
    backward = {
        stage: sum(job.costs.passes.get((kind, stage), 0) for kind in Pass if kind is not Pass.FORWARD)
        for stage in range(4)
    }
    assert backward[0] == backward[1] == 0 < min(backward[2], backward[3])
    assert [job.program.saved_bytes(stage) for stage in (0, 1)] == [0, 0]
    initial = {name: a for stage in range(4) for name, a in job.workload(0).initial_parameters(stage).items()}
    for name, array in run.learning.weights.items():
        assert np.array_equal(array, initial[name]) == (name[0] in "ab"), name


def test_frozen_stages_hold_as_much_whether_others_recompute():
    """They keep nothing of a forward pass for a backward one, so its peak is that of stages that compute again."""
    kept, again = (
        job_from(SCENARIO | {"pipeline": SCENARIO["pipeline"] | {"schedule": "gpipe", "allow_recompute": recompute}})
        for recompute in (False, True)
    )
    forward, with_recomputation = (
        [stage.forward_bytes for stage in job.memory.footprint.stages] for job in (kept, again)
    )
    assert forward[:2] == with_recomputation[:2]
    assert forward[2] != with_recomputation[2]


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


def test_variables_that_a_program_does_not_train_cost_what_frozen_layers_do(tmp_path):
    """Of TensorFlow's tutorial with dense layers that are not trainable, all of its first stage among them."""
    text = (PROGRAMS / "step3_pipelining.py").read_text()
    units = (256, 128, 64)
    for each in units:
        trained = f"layers.Dense({each}, activation=tf.nn.relu)(activations)"
        assert trained in text
        shapes = f"[int(activations.shape[-1]), {each}]", f"[{each}]"
        kernel, bias = (
            f"tf.get_variable('{name}', {shape}, trainable=False)"
            for name, shape in zip(("kernel", "bias"), shapes, strict=True)
        )
        frozen = f"tf.nn.relu(tf.nn.bias_add(tf.matmul(activations, {kernel}), {bias}))"
        text = text.replace(trained, frozen)
    file = tmp_path / "frozen.py"
    file.write_text(text)
    program = Ran(file, ["--epochs", "1"]).programs[0].job
    scenario = load_job(
        SCENARIOS / "tutorial_step3_pipelining.yaml", [f"model.layers.dense{each}.trainable=false" for each in units]
    )
    named = ("parameter_bytes", "untrained_bytes", "state_bytes", "accumulator_bytes", "gradient_bytes")
    for ours, theirs in zip(scenario.program.stages, program.program.stages, strict=True):
        assert {name: getattr(ours, name) for name in named} == {name: getattr(theirs, name) for name in named}
    assert scenario.program.stages[0].stash_bytes == program.program.stages[0].stash_bytes == 0
    assert scenario.costs.passes == program.costs.passes
    assert scenario.costs.passes[Pass.BACKWARD, 0] == 0 < scenario.costs.passes[Pass.BACKWARD, 1]
