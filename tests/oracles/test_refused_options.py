"""What options together cannot be is refused at the key of the option, in Graphcore's words where it has some."""

import pytest

from ipusim.app.scenario.problems import ScenarioError
from tests.oracles.test_offload import LAYERS

NO_REMOTE = "system.enable_remote_buffers=false"
INFERENCE = "training=false", "optimizer=null"
STAGE_OPTIONS = (
    "{} must be a list or a tuple of PipelineStageOptions objects of length 2 (same number as the number of "
    "computational stages) but is 1."
)
FORWARD, BACKWARD = (f"{way}_propagation_stages_poplar_options" for way in ("forward", "backward"))
#: Options, of which the first one is refused, and what is said.
CASES = [
    (
        ("pipeline.offload_weight_update_variables=true", NO_REMOTE),
        "Current configuration of the IPU devices does not support remote memory and therefore weight update only "
        "variables cannot be offloaded to remote memory.Consider configuring the IPU system with "
        "'IPUConfig.device_connection.enable_remote_buffers' set to True if remote memory is supported.",
    ),
    (
        ("pipeline.offload_gradient_accumulation_buffers=true", NO_REMOTE),
        "Gradient accumulation buffer offloading has been enabled, however the current configuration of the IPU "
        "devices does not support remote memory. Set the `offload_gradient_accumulation_buffers` argument of "
        "`pipelining_ops.pipeline` to `False` to stop seeing this message.",
    ),
    (
        ("pipeline.offload_activations=true",),
        "Activation offloading is only supported with the `Sequential` schedule and when "
        "`batch_serialization_iterations > 1`.",
    ),
    (
        ("system.enable_remote_buffers=true", "system.name=c2_server"),
        "expected a machine with Streaming Memory, m2000, pod16, pod64, pod128, pod256, bow2000, bow_pod16, "
        "bow_pod64, bow_pod128 or bow_pod256, got c2_server",
    ),
    (
        ("pipeline.replicated_optimizer_state_sharding=true", "pipeline.offload_weight_update_variables=false"),
        "To use replicated_optimizer_state_sharding, optimizer state must be offloaded by using "
        "offload_weight_update_variables.",
    ),
    (
        ("pipeline.replicated_weight_sharding=true", "pipeline.offload_weights=false"),
        "Requested replicated weight sharding for stage0 without offloading. This is currently not supported.",
    ),
    (
        ("pipeline.batch_serialization_iterations=3", "pipeline.schedule=sequential", "pipeline.reduction_method=MEAN"),
        "batch_serialization_iterations != 1 is only supported when reduction_method is "
        "GradientAccumulationReductionMethod.SUM",
    ),
    (
        ("pipeline.device_mapping=[0, 1]", "pipeline.batch_serialization_iterations=3", "pipeline.schedule=sequential"),
        "When using batch serialization, all the pipeline stages need to be mapped to a single IPU.",
    ),
    (
        ("pipeline.outfeed_mask=[true, false]", *INFERENCE),
        "An optimizer_function must be provided when outfeed_mask is set.",
    ),
    (
        ("pipeline.outfeed_loss=true", *INFERENCE),
        "An optimizer_function must be provided when outfeed_loss is True.",
    ),
    (
        ("pipeline.outfeed_mask=[true, false]", "pipeline.outfeed_loss=true"),
        "Only one of `outfeed_loss` and `outfeed_mask` can be set.",
    ),
    (
        ("pipeline.accumulate_outfeed=true", "outfeed.mode=LAST"),
        "To accumulate the outfeed, it must be in IPUOutfeedMode ALL.",
    ),
    (
        ("pipeline.outfeed_mask=[true]",),
        "The last computational stage has 2 outputs, but the `outfeed_mask` has elements 1 - these need to match in "
        "size.",
    ),
    (
        ("pipeline.accumulate_outfeed_dtype=float32",),
        "expected accumulate_outfeed: true with the type of the sum, got only the type",
    ),
    ((f"pipeline.{FORWARD}=[{{}}]",), STAGE_OPTIONS.format(FORWARD)),
    ((f"pipeline.{BACKWARD}=[{{}}]",), STAGE_OPTIONS.format(BACKWARD)),
    (
        (f"pipeline.{FORWARD}=[{{}}, {{}}]", "pipeline.cycles=[{forward: 10}, {forward: 10}]"),
        "expected no options of operations in stages with given cycles, got options: leave them out",
    ),
    (
        ("system.io_tiles.place_ops_on_io_tiles=true",),
        "Cannot place ops on I/O tiles when io_tiles.num_io_tiles == 0",
    ),
]


@pytest.mark.parametrize(("changes", "text"), CASES)
def test_options_that_do_not_go_together_are_refused_at_the_key_of_one(load, changes, text):
    with pytest.raises(ScenarioError) as caught:
        load(LAYERS, *changes)
    assert [(problem.key, problem.text) for problem in caught.value.problems] == [(changes[0].partition("=")[0], text)]
