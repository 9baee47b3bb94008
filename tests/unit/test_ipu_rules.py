"""Every rule of Graphcore's Python front door that a simulation can meet, with its exception type and exact text."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from ipusim import ipu
from ipusim.errors import CountError, DeviceError, IpusimError, ModelError, ProgramError, UnsupportedProgramError
from ipusim.ipu import get_variable
from ipusim.ipu.config import DeviceConnectionType, IPUConfig, SelectionOrder
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue, repeat
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipusim.ipu.optimizers import CrossReplicaOptimizer, GradientDescentOptimizer, Variable
from ipusim.ipu.pipelining_ops import (
    OptimizerFunctionOutput,
    PipelineSchedule,
    PipelineStageOptions,
    RecomputationMode,
    pipeline,
)

ONES = np.ones(2, np.float32)


def identity(x):
    return x


def times_w(x):
    return x * get_variable("w", 1.0)


def learn(*outputs):
    return OptimizerFunctionOutput(GradientDescentOptimizer(0.1), outputs[-1])


def run(**arguments):
    """Run a small pipeline that differs in these arguments; a value of ... leaves an argument out."""
    given = {
        "computational_stages": [times_w, identity],
        "gradient_accumulation_count": 8,
        "infeed_queue": IPUInfeedQueue(repeat([ONES])),
        "outfeed_queue": IPUOutfeedQueue(),
    } | arguments
    return pipeline(**{name: value for name, value in given.items() if value is not ...})


def options(count, **kinds):
    return [PipelineStageOptions(**kinds) for _ in range(count)]


FORWARD, BACKWARD = "forward_propagation_stages_poplar_options", "backward_propagation_stages_poplar_options"
INTERLEAVED_TWICE = (
    "The pipelining schedule 'Interleaved' does not currently support multiple pipeline stages on the same device for "
    "training graphs. Please use a different pipeline schedule."
)
ALSO_CALLED = (
    " This number might be called `gradient_accumulation_count`, `gradient_accumulation_steps_per_replica` or "
    "`steps_per_execution` depending on the API used."
)

ARGUMENT_RULES = [
    ({"gradient_accumulation_count": ...}, ValueError, "gradient_accumulation_count must be specified."),
    ({"gradient_accumulation_count": -1}, ValueError, "gradient_accumulation_count must be >= 0."),
    ({"gradient_accumulation_count": 2**31}, ValueError, "gradient_accumulation_count must be < max int32."),
    (
        {"reduction_method": "MEDIAN", "optimizer_function": learn},
        ValueError,
        "Cannot parse MEDIAN as one of GradientAccumulationReductionMethod. Valid values are: SUM, MEAN, RUNNING_MEAN.",
    ),
    (
        {"reduction_method": "mean", "optimizer_function": learn, "batch_serialization_iterations": 2},
        ValueError,
        "batch_serialization_iterations != 1 is only supported when reduction_method is "
        "GradientAccumulationReductionMethod.SUM",
    ),
    (
        {"continuous_weight_updates": True},
        NotImplementedError,
        "Continuous weight updates are currently not supported.",
    ),
    (
        {"pipeline_schedule": "Grouped"},
        TypeError,
        "The given pipeline_schedule is not a member of the PipelineSchedule enumeration.",
    ),
    (
        {"batch_serialization_iterations": 2, "pipeline_schedule": PipelineSchedule.Grouped},
        NotImplementedError,
        "Batch serialization is only supported with the `Sequential` schedule.",
    ),
    (
        {"recomputation_mode": "Auto"},
        TypeError,
        "The given recomputation_mode is not a member of the RecomputationMode enumeration.",
    ),
    ({"computational_stages": 3}, TypeError, "computational_stages argument needs to be a list or a tuple."),
    ({"infeed_queue": [ONES]}, TypeError, "infeed_queue is not an instance of ipu_infeed_queue.IPUInfeedQueue"),
    ({"outfeed_queue": []}, TypeError, "outfeed_queue is not an instance of ipu_outfeed_queue.IPUOutfeedQueue"),
    ({"computational_stages": [times_w]}, ValueError, "Pipeline requires at least two computational stages."),
    ({"computational_stages": []}, ValueError, "Pipeline requires at least two computational stages."),
    ({"device_mapping": 0}, TypeError, "device_mapping argument needs to be a list or a tuple."),
    ({"device_mapping": [0]}, ValueError, "Each stage must be mapped to an IPU: 1 mappings != 2 stages"),
    (
        {
            "device_mapping": [0, 0],
            "pipeline_schedule": PipelineSchedule.Interleaved,
            "optimizer_function": learn,
        },
        NotImplementedError,
        INTERLEAVED_TWICE,
    ),
    (
        {"device_mapping": [0, 1], "batch_serialization_iterations": 2},
        NotImplementedError,
        "When using batch serialization, all the pipeline stages need to be mapped to a single IPU.",
    ),
    ({FORWARD: 1}, TypeError, f"{FORWARD} must be a list or a tuple of PipelineStageOptions objects."),
    (
        {FORWARD: options(3)},
        ValueError,
        f"{FORWARD} must be a list or a tuple of PipelineStageOptions objects of length 2 (same number as the number "
        "of computational stages) but is 3.",
    ),
    (
        {FORWARD: [*options(1), "fast"]},
        TypeError,
        f"Expected all elements of {FORWARD} to be of type PipelineStageOptions, but got fast instead.",
    ),
    (
        {BACKWARD: 1, "optimizer_function": learn},
        TypeError,
        f"{BACKWARD} must be a list or a tuple of PipelineStageOptions objects.",
    ),
    (
        {BACKWARD: options(1), "optimizer_function": learn},
        ValueError,
        f"{BACKWARD} must be a list or a tuple of PipelineStageOptions objects of length 2 (same number as the number "
        "of computational stages) but is 1.",
    ),
    (
        {"weight_update_poplar_options": "fast", "optimizer_function": learn},
        TypeError,
        "weight_update_poplar_options to be of type PipelineStageOptions, but got fast instead.",
    ),
    ({"outfeed_mask": [True]}, ValueError, "An optimizer_function must be provided when outfeed_mask is set."),
    ({"outfeed_loss": True}, ValueError, "An optimizer_function must be provided when outfeed_loss is True."),
    (
        {"outfeed_loss": True, "outfeed_mask": [True], "optimizer_function": learn},
        ValueError,
        "Only one of `outfeed_loss` and `outfeed_mask` can be set.",
    ),
    (
        {"accumulate_outfeed": True, "outfeed_queue": None},
        ValueError,
        "An outfeed_queue must be provided when accumulate_outfeed is True.",
    ),
    (
        {"accumulate_outfeed": True, "outfeed_queue": IPUOutfeedQueue(IPUOutfeedMode.LAST)},
        ValueError,
        "To accumulate the outfeed, it must be in IPUOutfeedMode ALL.",
    ),
    (
        {"outfeed_loss": True, "optimizer_function": learn, "outfeed_queue": None},
        ValueError,
        "An outfeed_queue must be provided when outfeed_loss is True",
    ),
    (
        {"outfeed_mask": [True, False], "optimizer_function": learn},
        ValueError,
        "The last computational stage has 1 outputs, but the `outfeed_mask` has elements 2 - these need to match in "
        "size.",
    ),
    *(
        (
            {"outfeed_queue": None, "optimizer_function": function},
            ValueError,
            "The last computational stage has tensor outputs: Tensor(shape=(2,), dtype=float32), but no outfeed_queue "
            "has been provided.",
        )
        for function in (None, learn)
    ),
    (
        {"computational_stages": [identity, identity], "optimizer_function": learn},
        ValueError,
        "No variables to optimize.",
    ),
    (
        {
            "replicated_optimizer_state_sharding": True,
            "offload_weight_update_variables": False,
            "optimizer_function": learn,
        },
        ValueError,
        "To use replicated_optimizer_state_sharding, optimizer state must be offloaded by using "
        "offload_weight_update_variables.",
    ),
    (
        {"computational_stages": [[identity], identity]},
        ValueError,
        "When the pipeline stage is a list of functions, the device mapping must also be a list of device IDs.",
    ),
    (
        {"computational_stages": [[identity], identity], "device_mapping": [[0, 1], 2]},
        ValueError,
        "Pipeline stage list and device_id list must be the same length.",
    ),
    (
        {"computational_stages": [[[identity]], identity], "device_mapping": [[0], 2]},
        NotImplementedError,
        "Multiple nested levels of pipeline stages is not supported.",
    ),
    (
        {"computational_stages": [times_w, times_w]},
        NotImplementedError,
        "The PipelineStage with ID 1 is trying to use an input (w) which is already used by the PipelineStage with ID "
        "0. This violates the dataflow constraints because an input can only be used by pipeline stages on the same "
        "IPU.\nIf the model requires for multiple pipeline stages to access the same `tf.Variable` then these pipeline "
        "stages need to placed onto the same IPU using the `device_mapping` argument to "
        "`tf.python.ipu.pipelining_ops.pipeline`.",
    ),
    (
        {
            "pipeline_schedule": PipelineSchedule.Sequential,
            "recomputation_mode": RecomputationMode.RecomputeThenBackpropagate,
        },
        NotImplementedError,
        "Pipeline schedule Sequential does not support 'Recompute_then_backpropagate' recomputation mode.",
    ),
    (
        {
            "pipeline_schedule": PipelineSchedule.Interleaved,
            "recomputation_mode": RecomputationMode.RecomputeAndBackpropagateInterleaved,
        },
        NotImplementedError,
        "Pipeline schedule Interleaved does not support 'Recompute_and_backpropagate_interleaved' recomputation mode.",
    ),
    (
        {"gradient_accumulation_count": 6, "optimizer_function": learn},
        ValueError,
        "The number of iterations of the pipeline must be a multiple of 4, but it is 6." + ALSO_CALLED,
    ),
    (
        {"gradient_accumulation_count": 0},
        ValueError,
        "The number of iterations of the pipeline must be at least 2, but it is 0." + ALSO_CALLED,
    ),
    (
        {"offload_weight_update_variables": True, "optimizer_function": learn},
        ValueError,
        "Current configuration of the IPU devices does not support remote memory and therefore weight update only "
        "variables cannot be offloaded to remote memory.Consider configuring the IPU system with "
        "'IPUConfig.device_connection.enable_remote_buffers' set to True if remote memory is supported.",
    ),
    (
        {"offload_gradient_accumulation_buffers": True, "optimizer_function": learn},
        ValueError,
        "Gradient accumulation buffer offloading has been enabled, however the current configuration of the IPU "
        "devices does not support remote memory. Set the `offload_gradient_accumulation_buffers` argument of "
        "`pipelining_ops.pipeline` to `False` to stop seeing this message.",
    ),
]


def refused(kind, text, action):
    """Check that an action raises a package's error of the builtin type ``kind`` with exactly this text."""
    with pytest.raises(kind) as caught:
        action()
    assert isinstance(caught.value, IpusimError)
    assert str(caught.value) == text


@pytest.mark.parametrize(("arguments", "kind", "text"), ARGUMENT_RULES)
def test_arguments_of_pipeline(arguments, kind, text):
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
def test_the_first_broken_rule_speaks(first):
    broken = {"optimizer_function": learn}
    for arguments, _ in IN_ORDER[first:]:
        broken |= arguments
    with pytest.raises(ProgramError, match=IN_ORDER[first][1]):
        run(**broken)


@pytest.mark.parametrize(
    "arguments",
    [
        {"batch_serialization_iterations": 2},
        {"offload_activations": True},
        {"replicated_optimizer_state_sharding": True},
        {"replicated_weight_sharding": True},
        {"offload_weights": True},
        {FORWARD: options(2, matmul_options={"availableMemoryProportion": "0.2"})},
        {BACKWARD: options(2, convolution_options={"a": "b"}), "optimizer_function": learn},
        {"weight_update_poplar_options": PipelineStageOptions(slice_options={"a": "b"}), "optimizer_function": learn},
        {"accumulate_outfeed_dtype": lambda output: np.float32, "accumulate_outfeed": True},
        {"computational_stages": [identity, [identity, identity]], "device_mapping": [0, [1, 2]]},
        {"gradient_accumulation_count": "8"},
    ],
    ids=lambda arguments: next(iter(arguments)),
)
def test_what_is_not_simulated_is_refused_by_name(arguments):
    with pytest.raises(UnsupportedProgramError, match=f"^{next(iter(arguments))}: "):
        run(**arguments)


def test_replicas_that_learn_by_themselves_are_refused():
    config = IPUConfig()
    config.auto_select_ipus = 4
    with pytest.raises(UnsupportedProgramError, match="expected a CrossReplicaOptimizer"):
        run(optimizer_function=learn, config=config)


def test_defaults():
    found = run(optimizer_function=learn)
    assert found.plan.schedule == "grouped"
    assert found.program.shape.mapping == (0, 1)
    assert found.program.reduction == "SUM"
    assert found.program.infeed.prefetch_depth == found.program.outfeed.buffer_depth == 3
    assert not found.program.shape.recompute
    assert found.program.name == "pipeline"
    assert found.system.count == 2


def test_recomputation_needs_leave():
    config = IPUConfig()
    config.allow_recompute = True
    config.auto_select_ipus = 2
    assert run(optimizer_function=learn, config=config).program.shape.recompute


STAGE_OPTIONS = [
    (kind, f"PipelineStageOptions.{kind}_options must be dictionary.") for kind in ("convolution", "matmul", "slice")
]


@pytest.mark.parametrize(("kind", "text"), STAGE_OPTIONS)
def test_stage_options(kind, text):
    refused(TypeError, text, lambda: PipelineStageOptions(**{f"{kind}_options": [1]}))


OUTPUT = "OptimizerFunctionOutput"


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
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
    ],
)
def test_optimizer_function_output(arguments, kind, text):
    given = {"opt": GradientDescentOptimizer(0.1), "loss": np.float32(1)} | arguments
    refused(kind, f"{OUTPUT}.{text}", lambda: OptimizerFunctionOutput(**given))


def test_arguments_of_the_optimizer_are_handed_on():
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


def test_compute_gradients_takes_nothing_here():
    with pytest.raises(UnsupportedProgramError, match="compute_gradients_args: expected none"):
        OptimizerFunctionOutput(GradientDescentOptimizer(0.1), ONES, compute_gradients_args=(1,))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"dataset": [((ONES, ONES), ONES)]}, "Nested list/tuple input shapes are not supported"),
        ({"prefetch_depth": -1}, "prefetch_depth must be greater than zero, but it is -1"),
        ({"prefetch_depth": 256}, "prefetch_depth must be less than 256, but it is 256"),
        ({"device_ordinal": "0"}, "Device ordinal must be an integer"),
        ({"device_ordinal": -1}, "Device ordinal must be >= 0"),
    ],
)
def test_infeed_queue(arguments, text):
    refused(ValueError, text, lambda: IPUInfeedQueue(**({"dataset": [ONES]} | arguments)))


def test_infeed_elements_of_another_shape():
    queue = IPUInfeedQueue([np.ones((4, 3)), np.ones((2, 3))])
    text = "Output shape (None, 3) is not fully defined. If using tf.Dataset.batch, set `drop_remainder=True`."
    refused(ValueError, text, lambda: [queue.take(0), queue.take(1)])


def test_infeed_initializer_and_get_next():
    queue = IPUInfeedQueue([ONES])
    assert queue.initializer is None
    refused(
        ValueError,
        "The IPUInfeedQueue `initializer` function can only be accessed once.",
        lambda: queue.initializer,
    )
    refused(
        ValueError,
        "`get_next()` is now obsolete as the IPUInfeedQueue is now automatically dequeued by the loop.",
        queue.get_next,
    )


def test_infeed_serves_one_replication_factor():
    queue = IPUInfeedQueue(repeat([ONES]))
    config = IPUConfig()
    config.auto_select_ipus = 4
    run(infeed_queue=queue)
    refused(
        ValueError,
        "Iterator for feed infeed has already been setup with a replication factor of 1 when it should have "
        "2.Infeeds can not be shared across graphs with different replication factors. Please create a new "
        "InfeedQueue.",
        lambda: run(infeed_queue=queue, config=config),
    )


def test_infeed_ends():
    with pytest.raises(ModelError, match="the infeed's dataset ended after 3 elements"):
        run(infeed_queue=IPUInfeedQueue([ONES] * 3))


def test_infeed_goes_on_from_run_to_run():
    queue, outfeed = IPUInfeedQueue(np.float32(i) for i in range(16)), IPUOutfeedQueue()
    found = run(infeed_queue=queue, outfeed_queue=outfeed)
    found.run()
    assert outfeed.dequeue()[0].tolist() == list(range(16))
    assert outfeed.dequeue()[0].shape == (0,)


def test_infeed_elements_by_name():
    outfeed = IPUOutfeedQueue()
    run(
        computational_stages=[lambda scale, x, y: scale * (x - y), identity],
        inputs=[2],
        infeed_queue=IPUInfeedQueue(repeat([{"y": np.float32(1), "x": np.float32(4)}])),
        outfeed_queue=outfeed,
    )
    assert outfeed.dequeue()[0].tolist() == [6.0] * 8


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"outfeed_mode": "ALL"},
            "Expected `outfeed_mode` value to be of `ipu_outfeed_queue.IPUOutfeedMode` type, but is <class 'str'>.",
        ),
        ({"device_ordinal": 0.0}, "Device ordinal must be an integer"),
        ({"device_ordinal": -2}, "Device ordinal must be >= 0"),
        ({"buffer_depth": 0}, "Outfeed buffer depth cannot be less than 1"),
    ],
)
def test_outfeed_queue(arguments, text):
    refused(ValueError, text, lambda: IPUOutfeedQueue(**arguments))


def test_outfeed_before_and_after_a_pipeline():
    queue = IPUOutfeedQueue()
    refused(ValueError, "Trying to dequeue an outfeed which has not been enqueued.", queue.dequeue)
    run(outfeed_queue=queue)
    refused(ValueError, "An outfeed can only be enqueued once.", lambda: run(outfeed_queue=queue))
    assert len(queue) == 8
    assert [element[0].tolist() for element in queue] == [[1.0, 1.0]] * 8
    assert len(queue) == 0


def test_outfeed_in_mode_last():
    queue = IPUOutfeedQueue(IPUOutfeedMode.LAST)
    queue.connect([((2,), np.dtype(np.float32))], False)
    refused(
        RuntimeError,
        "Trying to get the last value from an outfeed queue before it was executed. Make sure the outfeed dequeue "
        "TensorFlow operation is executed after the enqueue to the outfeed has completed.",
        queue.dequeue,
    )
    refused(
        RuntimeError,
        "IPUOutfeedQueue can only be iterated over if the `outfeed_mode` is set to 'IPUOutfeedMode.ALL'.",
        lambda: iter(queue),
    )


def configured(**attributes):
    """Return a configuration with these attributes; a double underscore stands for a dot."""
    config = IPUConfig()
    for name, value in attributes.items():
        *path, last = name.split("__")
        place = config
        for step in path:
            place = getattr(place, step)
        setattr(place, last, value)
    return config


@pytest.mark.parametrize(
    ("attributes", "kind", "text"),
    [
        (
            {"auto_select_ipus": 2, "select_ipus": 3},
            Exception,
            "Only one of `auto_select_ipus` and `select_ipus` can be set.",
        ),
        ({"select_ipus": [1, 1]}, ValueError, "All MultiIPU indices in `select_ipus` must be unique."),
        (
            {"io_tiles__place_ops_on_io_tiles": True, "auto_select_ipus": 2},
            ValueError,
            "Cannot place ops on I/O tiles when io_tiles.num_io_tiles == 0",
        ),
        (
            {"device_connection__type": DeviceConnectionType.NEVER},
            ValueError,
            "device_connection.version must be set when device_connection.type is DeviceConnectionType.NEVER or "
            "DeviceConnectionType.PRE_COMPILE",
        ),
        ({}, RuntimeError, "No IPU devices configured."),
        (
            {"auto_select_ipus": 3},
            ValueError,
            "Unsupported number of IPUs requested - could not find an IPU device with 3 IPUs for the TensorFlow "
            "virtual device /device:IPU:0. Use `gc-info -l` to view the available device configurations.",
        ),
        (
            {"auto_select_ipus": 1},
            ValueError,
            "Trying to compile a graph for an IPU device with 1 IPUs and 2 shards. The number of shards needs to "
            "divide the number of IPUs.",
        ),
    ],
)
def test_configuration_of_a_pipeline(attributes, kind, text):
    refused(kind, text, lambda: run(config=configured(**attributes)))


@pytest.mark.parametrize(
    ("attributes", "kind", "text"),
    [
        (
            {"auto_select_ipu": 2},
            ValueError,
            "'auto_select_ipu' is not a valid attribute of this config. Did you mean 'auto_select_ipus'?",
        ),
        (
            {"io_tiles__num_tiles": 2},
            ValueError,
            "'num_tiles' is not a valid attribute of this config. Did you mean 'io_tiles.num_io_tiles'?",
        ),
        ({"_path": ""}, ValueError, "'_path' is not a valid attribute of this config. "),
        ({"colour": "red"}, ValueError, "'colour' is not a valid attribute of this config. "),
        ({"io_tiles": 32}, Exception, "io_tiles is a category and cannot be assigned to."),
        (
            {"io_tiles__num_io_tiles": True},
            TypeError,
            "Trying to set io_tiles.num_io_tiles to True, but it must be of type int",
        ),
        (
            {"allow_recompute": "yes"},
            TypeError,
            "Trying to set allow_recompute to yes, but it must be of type bool",
        ),
        (
            {"selection_order": "SNAKE"},
            TypeError,
            "Trying to set selection_order to SNAKE, but it must be of type SelectionOrder",
        ),
        (
            {"auto_select_ipus": "2"},
            TypeError,
            "Trying to set auto_select_ipus to 2, but it must be of type Union[int, List[int], Tuple[int, ...]]",
        ),
    ],
)
def test_configuration_attributes(attributes, kind, text):
    refused(kind, text, lambda: configured(**attributes))


def test_a_configuration_reads_back_and_copies():
    config = configured(selection_order=SelectionOrder.HOOF, optimizations__minimum_remote_tensor_size=64)
    other = copy.deepcopy(config)
    other.optimizations.minimum_remote_tensor_size = 32
    assert config.selection_order is SelectionOrder.HOOF
    assert config.optimizations.minimum_remote_tensor_size == 64
    with pytest.raises(ProgramError, match="'pod' is not a valid attribute of this config"):
        config.pod  # noqa: B018 - reading it raises


def test_the_configured_device_is_the_one_that_runs():
    config = configured(machine="bow_pod16", auto_select_ipus=[4], selection_order=SelectionOrder.HOOF)
    found = run(config=config)
    assert (found.system.name, found.system.count, found.system.replicas) == ("bow_pod16", 4, 2)
    with pytest.raises(DeviceError, match="unknown system 'bow_pod15'"):
        run(config=configured(machine="bow_pod15", auto_select_ipus=2))
    with pytest.raises(ProgramError, match="auto_select_ipus: expected one device"):
        run(config=configured(auto_select_ipus=[2, 2]))


def test_remote_buffers_take_the_optimizers_state_by_default():
    config = configured(auto_select_ipus=2, device_connection__enable_remote_buffers=True)
    assert run(optimizer_function=learn, config=config).program.offload.weight_update_variables
    assert not run(optimizer_function=learn).program.offload.weight_update_variables


def test_inference_says_what_has_no_effect():
    assert run(offload_weight_update_variables=True).notes == (
        "offload_weight_update_variables will have no effect since this pipeline is in inference.",
    )


def test_variables():
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


def test_a_failing_stage_is_named():
    def fails(x):
        raise KeyError("gone")

    with pytest.raises(ModelError, match=r"stage 'mine_stage_1' failed on float32\[2\]: KeyError: 'gone'"):
        run(computational_stages=[times_w, fails], name="mine")


def test_a_variable_asked_for_later_only_is_refused():
    calls = []

    def changing(x):
        calls.append(x)
        return x * get_variable("v", 1.0) if len(calls) > 4 else x

    with pytest.raises(ModelError, match="ask for all variables in every call"):
        run(computational_stages=[times_w, changing])


def test_counts_are_the_schedules():
    with pytest.raises(CountError):
        run(gradient_accumulation_count=7)


def test_the_package_shows_its_modules():
    assert ipu.get_variable is get_variable
    assert {"config", "ipu_infeed_queue", "ipu_outfeed_queue", "optimizers", "pipelining_ops"} < set(dir(ipu))
    assert CrossReplicaOptimizer(GradientDescentOptimizer(0.1)).cross_replica
