"""What a pipeline written in Python is made of: options, optimizers, variables, stages, defaults."""

from __future__ import annotations

import importlib

import autograd.numpy as anp
import numpy as np
import pytest

from ipusim import ipu
from ipusim.base.errors import ModelError, UnsupportedProgramError
from ipusim.ipu import get_variable
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.optimizers import CrossReplicaOptimizer, GradientDescentOptimizer, Variable
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, PipelineStageOptions

ONES = np.ones(2, np.float32)


def identity(x):
    return x


def times_w(x):
    return x * get_variable("w", 1.0)


def learn(*outputs):
    return OptimizerFunctionOutput(GradientDescentOptimizer(0.1), outputs[-1])


def test_replicas_that_learn_by_themselves_are_refused(run):
    config = IPUConfig()
    config.auto_select_ipus = 4
    with pytest.raises(UnsupportedProgramError, match="expected a CrossReplicaOptimizer"):
        run(optimizer_function=learn, config=config)


def test_defaults(run):
    found = run(optimizer_function=learn)
    assert found.plan.schedule == "grouped"
    assert found.program.shape.mapping == (0, 1)
    assert found.program.reduction == "SUM"
    assert found.program.infeed.prefetch_depth == found.program.outfeed.buffer_depth == 3
    assert not found.program.shape.recompute
    assert found.program.name == "pipeline"
    assert found.system.count == 2


STAGE_OPTIONS = [
    (kind, f"PipelineStageOptions.{kind}_options must be dictionary.") for kind in ("convolution", "matmul", "slice")
]


@pytest.mark.parametrize(("kind", "text"), STAGE_OPTIONS)
def test_stage_options(kind, text, refused):
    refused(TypeError, text, lambda: PipelineStageOptions(**{f"{kind}_options": [1]}))


OUTPUT = "OptimizerFunctionOutput"
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
        {"captured_gradient_outfeed": IPUOutfeedQueue()},
        ValueError,
        "captured_gradient_outfeed may not be used when neither an ipu.eager.backprop.GradientCollectionContext, "
        "nor an ipu.eager.backprop.GradientCollectionTape is also used.",
    ),
]


@pytest.mark.parametrize(("arguments", "kind", "text"), OUTPUTS)
def test_optimizer_function_output(arguments, kind, text, refused):
    given = {"opt": GradientDescentOptimizer(0.1), "loss": np.float32(1)} | arguments
    refused(kind, f"{OUTPUT}.{text}", lambda: OptimizerFunctionOutput(**given))


def test_arguments_of_the_optimizer_are_handed_on(run):
    seen = []

    class Asking(GradientDescentOptimizer):
        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            seen.append((global_step, name))
            super().apply_gradients(grads_and_vars)

    def function(loss):
        return OptimizerFunctionOutput(
            Asking(0.1), loss, apply_gradients_args=(5,), apply_gradients_kwargs={"name": "n"}
        )

    run(optimizer_function=function)
    assert seen == [(5, "n")]


def test_inference_says_what_has_no_effect(run):
    assert run(offload_weight_update_variables=True).notes == (
        "offload_weight_update_variables will have no effect since this pipeline is in inference.",
    )


def test_variables(run):
    with pytest.raises(ModelError, match=r"get_variable\('w'\) was called outside of a pipeline stage"):
        get_variable("w", 1.0)
    with pytest.raises(ModelError, match="expected a floating-point dtype"):
        run(computational_stages=[lambda x: x * get_variable("w", np.array(1)), identity])
    with pytest.raises(ModelError, match="one name is one variable"):
        run(computational_stages=[times_w, lambda x: x * get_variable("w", ONES)], device_mapping=[0, 0])
    variable = Variable("w", np.ones(2), {})
    variable.assign_add(1)
    variable.assign_sub([0.5, 0])
    assert variable.numpy().tolist() == [1.5, 2.0]
    variable.assign(3)
    assert (variable.shape, variable.dtype, variable.array.tolist()) == ((2,), np.float64, [3.0, 3.0])


def test_a_failing_stage_is_named(run):
    def fails(x):
        raise KeyError("gone")

    with pytest.raises(ModelError, match=r"stage 'mine_stage_1' failed on float32\[2\]: KeyError: 'gone'"):
        run(computational_stages=[times_w, fails], name="mine")


def test_a_variable_asked_for_later_only_is_refused(run):
    calls = []

    def changing(x):
        calls.append(x)
        return x * get_variable("v", 1.0) if len(calls) > 4 else x

    with pytest.raises(ModelError, match="ask for all variables in every call"):
        run(computational_stages=[times_w, changing])


def test_the_package_shows_its_modules():
    assert ipu.get_variable is get_variable
    assert {"config", "ipu_infeed_queue", "ipu_outfeed_queue", "optimizers", "pipelining_ops"} < set(dir(ipu))
    assert CrossReplicaOptimizer(GradientDescentOptimizer(0.1)).cross_replica


@pytest.mark.parametrize("name", ["", ".distributed", ".horovod", ".optimizers", ".tensorflow.distribute", ".utils"])
def test_every_row_of_a_module_stands_for_something(name):
    module = importlib.import_module(f"ipusim.ipu{name}")
    assert [each for each in dir(module) if getattr(module, each) is None] == []


def test_a_stage_that_cannot_be_counted_or_traced_is_named(run):
    with pytest.raises(ModelError, match="stage 'pipeline_stage_1': the work of 'inv' cannot be counted"):
        run(computational_stages=[times_w, lambda x: anp.linalg.inv(anp.outer(x, x) + anp.eye(2))])
    with pytest.raises(
        ModelError, match="stage 'pipeline_stage_1': it cannot be traced: NotImplementedError: VJP of copy"
    ):
        run(computational_stages=[times_w, anp.copy], optimizer_function=learn)


def test_gradients_go_back_to_variables_alone(run):
    """As TensorFlow takes gradients of the variables: labels on their way and stages before the first need none."""
    found = run(
        computational_stages=[lambda x: (x, x + 1), lambda x, y: (times_w(x), y), lambda x, y: anp.sum((x - y) ** 2)],
        gradient_accumulation_count=12,
        optimizer_function=learn,
    )
    assert [profile.gradient_bytes for profile in found.program.stages] == [0, 0, 8]
    assert [profile.output_bytes for profile in found.program.stages] == [16, 16, 0]
    assert [bool(profile.backward) for profile in found.program.stages] == [False, True, True]
    # The sum of 2 (w - 2) over two elements and 12 micro-batches, at w = 1.
    assert found.variables["w"] == pytest.approx(1 - 0.1 * 12 * 2 * 2 * (1 - 2))
