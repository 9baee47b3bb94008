"""Runs whose first stages are frozen: what they do backward, and where their weights lie."""

from ipusim.app.scenario import load_job
from ipusim.pipeline.ops import Pass
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
