"""Graphcore's rules for the arguments of a pipeline, each with its exception type and exact text.

Those of the type of an argument are in test_misuse, those of scenarios too in tests/oracles/test_refused_options.py.
"""

import numpy as np
import pytest

from ipusim.base.errors import CountError, ProgramError, UnsupportedProgramError
from ipusim.ipu.config import DeviceConnectionType
from ipusim.ipu.runtime.pipeline_options import PipelineSchedule, PipelineStageOptions, RecomputationMode
from tests.programs import configured
from tests.traced_training import Lazily

ONES = np.ones(2, np.float32)
tf = Lazily("graph.tensorflow_import")


def identity(x):
    return x


def times_w(x):
    v1 = tf.load().compat.v1
    with v1.variable_scope("", reuse=v1.AUTO_REUSE):
        return x * v1.get_variable("w", [], initializer=v1.ones_initializer())


def learn(*outputs):
    optimizer = tf.load().compat.v1.train.GradientDescentOptimizer(0.1)
    return Lazily("pipelining_ops").OptimizerFunctionOutput(optimizer, outputs[-1])


def options(count, **kinds):
    return [PipelineStageOptions(**kinds) for _ in range(count)]


#: A device that a program attaches to later has no remote memory unless the configuration says so.
ATTACHED_LATER = configured(auto_select_ipus=2, device_connection__type=DeviceConnectionType.ON_DEMAND)
FORWARD, BACKWARD = "forward_propagation_stages_poplar_options", "backward_propagation_stages_poplar_options"

OF_VALUE_ERROR = [
    ({"gradient_accumulation_count": ...}, "gradient_accumulation_count must be specified."),
    ({"gradient_accumulation_count": -1}, "gradient_accumulation_count must be >= 0."),
    ({"gradient_accumulation_count": 2**31}, "gradient_accumulation_count must be < max int32."),
    (
        {"reduction_method": "MEDIAN", "optimizer_function": learn},
        "Cannot parse MEDIAN as one of GradientAccumulationReductionMethod. Valid values are: SUM, MEAN, RUNNING_MEAN.",
    ),
    ({"device_mapping": [0]}, "Each stage must be mapped to an IPU: 1 mappings != 2 stages"),
    ({"outfeed_mask": [True]}, "An optimizer_function must be provided when outfeed_mask is set."),
    ({"outfeed_loss": True}, "An optimizer_function must be provided when outfeed_loss is True."),
    (
        {"accumulate_outfeed": True, "outfeed_queue": None},
        "An outfeed_queue must be provided when accumulate_outfeed is True.",
    ),
    (
        {"accumulate_outfeed": True, "outfeed_mode": "LAST"},
        "To accumulate the outfeed, it must be in IPUOutfeedMode ALL.",
    ),
    (
        {"outfeed_loss": True, "optimizer_function": learn, "outfeed_queue": None},
        "An outfeed_queue must be provided when outfeed_loss is True",
    ),
    (
        {"outfeed_mask": [True, False], "optimizer_function": learn},
        "The last computational stage has 1 outputs, but the `outfeed_mask` has elements 2 - these need to match in "
        "size.",
    ),
    ({"outfeed_queue": None}, "Must specify at least one of outfeed_queue or optimizer_function"),
    (
        {"outfeed_queue": None, "optimizer_function": learn},
        'The last computational stage has tensor outputs: Tensor("stage1_input:0", shape=(2,), dtype=float32), but no '
        "outfeed_queue has been provided.",
    ),
    (
        {"computational_stages": [[identity], identity]},
        "When the pipeline stage is a list of functions, the device mapping must also be a list of device IDs.",
    ),
    (
        {"computational_stages": [[identity], identity], "device_mapping": [[0, 1], 2]},
        "Pipeline stage list and device_id list must be the same length.",
    ),
    (
        {
            "replicated_optimizer_state_sharding": True,
            "offload_weight_update_variables": False,
            "optimizer_function": learn,
        },
        "To use replicated_optimizer_state_sharding, optimizer state must be offloaded by using "
        "offload_weight_update_variables.",
    ),
    (
        {"gradient_accumulation_count": 0},
        "The number of iterations of the pipeline must be at least 2, but it is 0. This number might be called "
        "`gradient_accumulation_count`, `gradient_accumulation_steps_per_replica` or `steps_per_execution` depending "
        "on the API used.",
    ),
    (
        {"offload_activations": True, "batch_serialization_iterations": 2, "config": ATTACHED_LATER},
        "Activations offloading has been enabled, however the current configuration of the IPU devices does not "
        "support remote memory. Set the `offload_activations` argument of `pipelining_ops.pipeline` to `False` to stop "
        "seeing this message.",
    ),
    (
        {FORWARD: options(2, matmul_options={"availableMemoryProportion": "two"})},
        f"{FORWARD}: expected an availableMemoryProportion above 0 and at most 1, got 'two'",
    ),
    (
        {"offload_weight_update_variables": True, "optimizer_function": learn, "config": ATTACHED_LATER},
        "Current configuration of the IPU devices does not support remote memory and therefore weight update only "
        "variables cannot be offloaded to remote memory.Consider configuring the IPU system with "
        "'IPUConfig.device_connection.enable_remote_buffers' set to True if remote memory is supported.",
    ),
    (
        {"offload_gradient_accumulation_buffers": True, "optimizer_function": learn, "config": ATTACHED_LATER},
        "Gradient accumulation buffer offloading has been enabled, however the current configuration of the IPU "
        "devices does not support remote memory. Set the `offload_gradient_accumulation_buffers` argument of "
        "`pipelining_ops.pipeline` to `False` to stop seeing this message.",
    ),
]
OF_NOT_IMPLEMENTED_ERROR = [
    (
        {"computational_stages": [[[identity]], identity], "device_mapping": [[0], 2]},
        "Multiple nested levels of pipeline stages is not supported.",
    ),
    (
        {"computational_stages": [times_w, times_w]},
        "The PipelineStage with ID 1 is trying to use an input (w) which is already used by the PipelineStage with ID "
        "0. This violates the dataflow constraints because an input can only be used by pipeline stages on the same "
        "IPU.\nIf the model requires for multiple pipeline stages to access the same `tf.Variable` then these pipeline "
        "stages need to placed onto the same IPU using the `device_mapping` argument to "
        "`tf.python.ipu.pipelining_ops.pipeline`.",
    ),
    (
        {
            "pipeline_schedule": PipelineSchedule.Interleaved,
            "recomputation_mode": RecomputationMode.RecomputeAndBackpropagateInterleaved,
        },
        "Pipeline schedule Interleaved does not support 'Recompute_and_backpropagate_interleaved' recomputation mode.",
    ),
    (
        {"replicated_weight_sharding": True},
        "Requested replicated weight sharding for pipeline_stage_0 without offloading. This is currently not "
        "supported.",
    ),
]
ARGUMENT_RULES = {ValueError: OF_VALUE_ERROR, NotImplementedError: OF_NOT_IMPLEMENTED_ERROR}


def test_the_order_of_other_releases(run, refused):
    """Release 2.1 has repeat_count where gradient_accumulation_for_captured_grads is now; before 1.4 it had a depth."""
    stages = [times_w, identity]
    for found in (
        run(stages, 8, None, 10),
        run(stages, 8, None, True, 10),
        run(stages, pipeline_depth=8, repeat_count=10),
    ):
        assert (found.job.program.repeat_count, found.job.program.shape.micro_batches) == (10, 8)
    text = (
        "gradient_accumulation_dtype: expected a dtype, a function or None, got 8; before SDK 1.4 the gradient "
        "accumulation count stood there, after pipeline_depth None: name the arguments"
    )
    refused(TypeError, text, lambda: run(stages, None, 8, 10))
    text = (
        "gradient_accumulation_for_captured_grads: expected True or False, got 10; the order of pipeline's arguments "
        "differs between Graphcore's releases, so name those after gradient_accumulation_count"
    )
    refused(TypeError, text, lambda: run(stages, 8, gradient_accumulation_for_captured_grads=10))


@pytest.mark.parametrize(
    ("kind", "arguments", "text"), [(kind, *rule) for kind, rules in ARGUMENT_RULES.items() for rule in rules]
)
def test_arguments_of_pipeline(kind, arguments, text, run, refused):
    refused(kind, text, lambda: run(**arguments))


#: Arguments that break one rule each, in the order in which the rules are looked at.
IN_ORDER = [
    ({"gradient_accumulation_count": -1}, "count must be >= 0"),
    ({"reduction_method": "MEDIAN"}, "Cannot parse"),
    ({"continuous_weight_updates": True}, "Continuous weight updates"),
    ({"pipeline_schedule": 1}, "pipeline_schedule is not a member"),
    ({"recomputation_mode": 1}, "recomputation_mode is not a member"),
    ({"infeed_queue": 1}, "infeed_queue is not an instance"),
    ({"outfeed_queue": 1}, "outfeed_queue is not an instance"),
    ({"device_mapping": [0, 1, 2]}, "Each stage must be mapped"),
    ({FORWARD: options(3)}, FORWARD),
    ({BACKWARD: options(3)}, BACKWARD),
    ({"weight_update_poplar_options": 1}, "weight_update_poplar_options"),
    ({"outfeed_mask": [True, True], "outfeed_loss": True}, "Only one of"),
]


@pytest.mark.parametrize("first", range(len(IN_ORDER)))
def test_the_first_broken_rule_speaks(first, run):
    broken = {"optimizer_function": learn}
    for arguments, _ in IN_ORDER[first:]:
        broken |= arguments
    with pytest.raises(ProgramError, match=IN_ORDER[first][1]):
        run(**broken)


@pytest.mark.parametrize(
    "arguments",
    [
        {FORWARD: options(2, matmul_options={"use128BitConvUnitLoad": "true"})},
        {FORWARD: options(2, slice_options={"availableMemoryProportion": "0.2"})},
        {BACKWARD: options(2, convolution_options={"a": "b"}), "optimizer_function": learn},
        {"weight_update_poplar_options": PipelineStageOptions(slice_options={"a": "b"}), "optimizer_function": learn},
        {"accumulate_outfeed_dtype": lambda output: np.float32, "accumulate_outfeed": True},
        {"computational_stages": [identity, [identity, identity]], "device_mapping": [0, [1, 2]]},
    ],
    ids=lambda arguments: next(iter(arguments)),
)
def test_what_is_not_simulated_is_refused_by_name(arguments, run):
    with pytest.raises(UnsupportedProgramError, match=f"^{next(iter(arguments))}: "):
        run(**arguments)


def test_counts_are_the_schedules(run):
    with pytest.raises(CountError):
        run(gradient_accumulation_count=7)
