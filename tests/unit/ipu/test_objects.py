"""Objects around a pipeline: what an optimizer function hands on, defaults, gradients."""

import pytest


def learning(run, kind=None, **output):
    """An optimizer function of gradient descent."""
    kind = kind or run.names.tf.train.GradientDescentOptimizer
    return lambda loss: run.names.ipu.pipelining_ops.OptimizerFunctionOutput(kind(0.1), loss, **output)


def test_defaults(run):
    found = run(optimizer_function=learning(run)).job
    assert found.plan.schedule == "grouped"
    assert found.program.shape.mapping == (0, 1)
    assert found.program.reduction == "SUM"
    assert found.program.infeed.prefetch_depth == found.program.outfeed.buffer_depth == 3
    assert not found.program.shape.recompute
    assert found.program.name == "pipeline"
    assert found.system.count == 2


def test_arguments_of_the_optimizer_are_handed_on(run):
    seen = []

    class Asking(run.names.tf.train.GradientDescentOptimizer):
        def compute_gradients(self, loss, *args, **kwargs):
            seen.append((args, kwargs["gate_gradients"]))
            return super().compute_gradients(loss, *args, **kwargs)

        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            seen.append((global_step, name))
            return super().apply_gradients(grads_and_vars)

    output = {"compute_gradients_args": (None,), "compute_gradients_kwargs": {"gate_gradients": 1}}
    output |= {"apply_gradients_args": (5,), "apply_gradients_kwargs": {"name": "n"}}
    run(optimizer_function=learning(run, Asking, **output))
    assert seen == [((None,), 1), (5, "n")]


def test_inference_says_what_has_no_effect(run):
    assert run(offload_weight_update_variables=True).job.notes == (
        "offload_weight_update_variables will have no effect since this pipeline is in inference.",
    )


def test_gradients_go_back_to_variables_alone(run):
    """As TensorFlow takes gradients of the variables: labels on their way and stages before the first need none."""
    found = run(
        computational_stages=[
            lambda x: (x, x + 1),
            lambda x, y: (run.times_w(x), y),
            lambda x, y: run.names.tf.reduce_sum((x - y) ** 2),
        ],
        gradient_accumulation_count=12,
        optimizer_function=learning(run),
    )
    stages = found.job.program.stages
    assert [profile.gradient_bytes for profile in stages] == [0, 0, 8]
    assert [profile.output_bytes for profile in stages] == [16, 16, 0]
    assert [bool(profile.backward) for profile in stages] == [False, True, True]
    # The sum of 2 (w - 2) over two elements and 12 micro-batches, at w = 1.
    assert found.variables["w"] == pytest.approx(1 - 0.1 * 12 * 2 * 2 * (1 - 2))
