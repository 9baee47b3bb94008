"""Whatever both front doors can say runs alike: a scenario's own layers in Python functions, under its own options."""

from __future__ import annotations

from pathlib import Path

import autograd.numpy as anp
import numpy as np
import pytest

from ipusim.app.scenario import load_job
from ipusim.ipu.config import IPUConfig, SelectionOrder
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipusim.ipu.optimizers import CrossReplicaOptimizer, GradientDescentOptimizer, MomentumOptimizer
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, RecomputationMode, pipeline
from ipusim.ipu.runtime import layers
from ipusim.runs.execute import execute
from tests.effort import sampled

SCENARIOS = Path(__file__).parents[2] / "scenarios"
#: Options that have one name, in a scenario's pipeline and in Graphcore's.
SAME = (
    "repeat_count",
    "batch_serialization_iterations",
    "offload_weight_update_variables",
    "offload_gradient_accumulation_buffers",
    "offload_activations",
    "offload_weights",
    "replicated_weight_sharding",
    "replicated_optimizer_state_sharding",
    "accumulate_outfeed",
    "outfeed_mask",
    "reduction_method",
)
#: What makes time pass at the feeds, in one step.
FED = ("steps=1", "pipeline.repeat_count=2", "use_synthetic_data=false")
REMOTE = ("system.enable_remote_buffers=true",)
REPLICAS = ("system.auto_select_ipus=16", "system.name=pod16")
DIGITS = "digits_training"
RECOMPUTE = "pipeline.allow_recompute=true"
CASES = {
    "step 3": ("tutorial_step3_pipelining", FED),
    "step 3, interleaved": ("tutorial_step3_pipelining", (*FED, "pipeline.schedule=interleaved")),
    "step 3, sequential": ("tutorial_step3_pipelining", (*FED, "pipeline.schedule=sequential")),
    "step 4": ("tutorial_step4_configurable_stages", FED),
    "step 4, hoof": ("tutorial_step4_configurable_stages", (*FED, "system.selection_order=HOOF")),
    "digits": (DIGITS, FED),
    "inference": ("inference", ("pipeline.repeat_count=2",)),
    "the last results of inference": ("inference", ("pipeline.repeat_count=2", "outfeed.mode=LAST")),
    "recomputation": (DIGITS, (*FED, RECOMPUTE)),
    "recomputation inside the backward pass": (
        DIGITS,
        (*FED, RECOMPUTE, "pipeline.recomputation_mode=RecomputeAndBackpropagateInterleaved"),
    ),
    "transformer": (
        "transformer_eight_ipus",
        (*FED, "optimizer={type: momentum, learning_rate: 0.01, momentum: 0.9}"),
    ),
    "sums in buffers": (DIGITS, (*FED, "system.maximum_cross_replica_sum_buffer_size=100")),
    "offload": (DIGITS, (*FED, *REMOTE, "system.minimum_remote_tensor_size=0")),
    "offload of accumulators": (DIGITS, (*FED, *REMOTE, "pipeline.offload_gradient_accumulation_buffers=true")),
    "replicas": (DIGITS, (*FED, *REPLICAS)),
    "sharded state": (DIGITS, (*FED, *REPLICAS, *REMOTE, "pipeline.replicated_optimizer_state_sharding=true")),
    "sharded weights": (DIGITS, (*FED, *REPLICAS, *REMOTE, "pipeline.replicated_weight_sharding=true")),
    "I/O tiles": (
        DIGITS,
        (
            *FED,
            "pipeline.gradient_accumulation_count=16",
            "system.io_tiles={num_io_tiles: 64, place_ops_on_io_tiles: true}",
        ),
    ),
    "I/O tiles without room": (
        DIGITS,
        (
            *FED,
            "pipeline.gradient_accumulation_count=16",
            "system.io_tiles={num_io_tiles: 1, place_ops_on_io_tiles: true, available_memory_proportion: 0.001}",
        ),
    ),
    "a mask": (DIGITS, (*FED, "pipeline.outfeed_mask=[true, false]")),
    "accumulated losses": (DIGITS, (*FED, "pipeline.accumulate_outfeed=true")),
    "batch serialization": (
        DIGITS,
        (
            *FED,
            "pipeline.device_mapping=[0, 0, 0, 0]",
            "pipeline.batch_serialization_iterations=4",
            "pipeline.schedule=sequential",
            "pipeline.reduction_method=SUM",
            "pipeline.micro_batch_size=4",
        ),
    ),
    "available memory": (DIGITS, (*FED, "system.matmuls={poplar_options: {availableMemoryProportion: 0.1}}")),
}


def function_of(stage, *, training, gives_predictions):
    """Return a scenario's stage as a function of arrays; labels travel on where a loss follows."""

    def run(x, *labels):
        for named in stage.named_layers:
            x = layers.layer(named.name, named.layer, x)
        if stage.loss is None:
            return (x, *labels) if training else x
        loss = layers.loss(stage.loss.name, stage.loss.layer, x, *labels)
        return (x, loss) if gives_predictions else loss

    return run


def config_of(options):
    system, config = options.system, IPUConfig()
    config.machine = system.name
    config.auto_select_ipus = system.auto_select_ipus
    config.selection_order = SelectionOrder[system.selection_order]
    config.allow_recompute = options.pipeline.allow_recompute
    config.device_connection.enable_remote_buffers = system.enable_remote_buffers
    config.optimizations.minimum_remote_tensor_size = system.minimum_remote_tensor_size
    config.optimizations.maximum_cross_replica_sum_buffer_size = system.maximum_cross_replica_sum_buffer_size or 0
    for name in ("num_io_tiles", "place_ops_on_io_tiles", "available_memory_proportion"):
        setattr(config.io_tiles, name, getattr(system.io_tiles, name))
    share = system.matmuls.poplar_options.availableMemoryProportion
    config.matmuls.poplar_options = {} if share is None else {"availableMemoryProportion": str(share)}
    return config


def optimizer_of(options, replicas):
    spec = options.optimizer
    if spec.type == "sgd":
        found = GradientDescentOptimizer(spec.learning_rate)
    else:
        found = MomentumOptimizer(spec.learning_rate, spec.momentum)
    return CrossReplicaOptimizer(found) if replicas > 1 else found


def in_python(job):
    """Run what the scenario of a Job asks for through Graphcore's API."""
    options, stages = job.request.options, job.workload(0).stages
    asked, training = options.pipeline, job.program.shape.training
    feed = job.workload(0).feed
    elements = [
        feed.element(index) for index in range(job.program.shape.micro_batches * job.system.replicas * job.executions)
    ]
    optimizer = optimizer_of(options, job.system.replicas) if training else None
    return pipeline(
        [function_of(stage, training=training, gives_predictions=asked.outfeed_mask is not None) for stage in stages],
        asked.gradient_accumulation_count,
        infeed_queue=IPUInfeedQueue(elements),
        outfeed_queue=IPUOutfeedQueue(IPUOutfeedMode[options.outfeed.mode]),
        optimizer_function=((lambda *outputs: OptimizerFunctionOutput(optimizer, outputs[-1])) if training else None),
        device_mapping=asked.device_mapping,
        pipeline_schedule=PipelineSchedule[asked.schedule.capitalize()],
        recomputation_mode=RecomputationMode(asked.recomputation_mode),
        config=config_of(options),
        **{name: getattr(asked, name) for name in SAME},
    )


def same_timeline(found, right):
    for column in ("start", "end", "kind", "ipu", "stage", "micro_batch", "time_step", "link", "bytes", "cause"):
        np.testing.assert_array_equal(getattr(found, column), getattr(right, column), err_msg=column)


@sampled(2)
@pytest.mark.parametrize("case", CASES)
def test_a_scenario_and_its_functions_give_one_timeline(case):
    name, changes = CASES[case]
    job = load_job(SCENARIOS / f"{name}.yaml", changes)
    right, found = execute(job), in_python(job)
    assert found.plan == job.plan
    assert found.system == job.system
    same_timeline(found.timeline, right.timeline)
    assert found.memory.peaks == job.memory.peaks
    assert found.notes == job.notes


CONCURRENT = """\
system: {name: m2000, auto_select_ipus: 4}
data: {type: digits}
model:
  layers:
    - {name: flatten, type: flatten}
    - {name: a, type: dense, units: 32, activation: relu}
    - name: side
      type: parallel
      branches:
        - [{name: left, type: dense, units: 16}]
        - [{name: right, type: dense, units: 24}]
    - {name: logits, type: dense, units: 10}
    - {name: cel, type: softmax_cross_entropy}
pipeline:
  splits: [side, logits]
  device_mapping: [0, [1, 2], 3]
  micro_batch_size: 8
  gradient_accumulation_count: 12
optimizer: {type: sgd, learning_rate: 0.1}
"""


def test_branches_side_by_side_and_a_list_of_functions_give_one_timeline(tmp_path):
    (tmp_path / "side.yaml").write_text(CONCURRENT)
    job = load_job(tmp_path / "side.yaml")
    right, workload = execute(job), job.workload(0)
    first, last = (function_of(workload.stages[place], training=True, gives_predictions=False) for place in (0, -1))
    left, other = (stage.named_layers[0].layer.layers[0].layer for stage in workload.stages[1:3])
    found = pipeline(
        [
            first,
            [lambda x, y: (layers.layer("left", left, x), y), lambda x, _: layers.layer("right", other, x)],
            lambda a, y, b: last(anp.concatenate((a, b), axis=1), y),
        ],
        12,
        infeed_queue=IPUInfeedQueue([workload.feed.element(index) for index in range(12)]),
        outfeed_queue=IPUOutfeedQueue(),
        optimizer_function=lambda loss: OptimizerFunctionOutput(GradientDescentOptimizer(0.1), loss),
        device_mapping=[0, [1, 2], 3],
        config=config_of(job.request.options),
    )
    same_timeline(found.timeline, right.timeline)
