"""Objects around a pipeline: options of stages, an optimizer function's output, defaults, rows of modules."""

import importlib

import pytest

from ipusim.ipu.runtime.pipeline_options import PipelineStageOptions

STAGE_OPTIONS = [
    (kind, f"PipelineStageOptions.{kind}_options must be dictionary.") for kind in ("convolution", "matmul", "slice")
]
OUTPUT = "OptimizerFunctionOutput"
#: A value of ... is an outfeed queue.
OUTPUTS = [
    ({"opt": 1}, TypeError, "opt must be a TensorFlow Optimizer or Keras OptimizerV2 object."),
    ({"loss": 1.0}, TypeError, "loss must be a TensorFlow Tensor object."),
    ({"compute_gradients_args": [1]}, TypeError, "compute_gradients_args must be a tuple."),
    ({"compute_gradients_kwargs": [1]}, TypeError, "compute_gradients_kwargs must be a dict."),
    ({"apply_gradients_args": [1]}, TypeError, "apply_gradients_args must be a tuple."),
    ({"apply_gradients_kwargs": [1]}, TypeError, "apply_gradients_kwargs must be a dict."),
    ({"variables": 1}, TypeError, "variables must be a tuple or list."),
    ({"variables": [1]}, ValueError, "variables may only be used with OptimizerV2."),
    ({"tape": 1}, TypeError, "tape must be a GradientTape."),
    (
        {"gradient_capture_context": 1},
        TypeError,
        "gradient_capture_context must be an ipu.eager.backprop.GradientCollectionContext.",
    ),
    (
        {"captured_gradient_outfeed": 1},
        TypeError,
        "captured_gradient_outfeed must be an instance of IPUOutfeedQueue.",
    ),
    (
        {"captured_gradient_outfeed": ...},
        ValueError,
        "captured_gradient_outfeed may not be used when neither an ipu.eager.backprop.GradientCollectionContext, "
        "nor an ipu.eager.backprop.GradientCollectionTape is also used.",
    ),
]


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


@pytest.mark.parametrize(("kind", "text"), STAGE_OPTIONS)
def test_stage_options(kind, text, refused):
    refused(TypeError, text, lambda: PipelineStageOptions(**{f"{kind}_options": [1]}))


@pytest.mark.parametrize(("arguments", "kind", "text"), OUTPUTS)
def test_optimizer_function_output(arguments, kind, text, refused, run):
    names = run.names
    given = {"opt": names.tf.train.GradientDescentOptimizer(0.1), "loss": names.tf.constant(1.0)} | arguments
    if ... in given.values():
        given["captured_gradient_outfeed"] = names.ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    refused(kind, f"{OUTPUT}.{text}", lambda: names.ipu.pipelining_ops.OptimizerFunctionOutput(**given))


def test_arguments_of_the_optimizer_are_handed_on(run):
    seen = []

    class Asking(run.names.tf.train.GradientDescentOptimizer):
        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            seen.append((global_step, name))
            return super().apply_gradients(grads_and_vars)

    output = {"apply_gradients_args": (5,), "apply_gradients_kwargs": {"name": "n"}}
    run(optimizer_function=learning(run, Asking, **output))
    assert seen == [(5, "n")]


def test_inference_says_what_has_no_effect(run):
    assert run(offload_weight_update_variables=True).job.notes == (
        "offload_weight_update_variables will have no effect since this pipeline is in inference.",
    )


@pytest.mark.parametrize("name", ["", ".distributed", ".horovod", ".optimizers", ".utils"])
def test_every_row_of_a_module_stands_for_something(name, run):
    module = importlib.import_module(f"ipusim.ipu{name}")
    assert [each for each in dir(module) if getattr(module, each) is None] == []


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
