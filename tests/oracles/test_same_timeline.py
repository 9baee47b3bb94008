"""Whatever a scenario and a program can say runs alike: the same layers and options, on one Plan, in the same time."""

import numpy as np
import pytest

from ipusim.app.scenario import load_job
from ipusim.ipu.runtime.pipeline_options import PipelineSchedule, RecomputationMode
from ipusim.model.work import VectorWork
from ipusim.pipeline.footprint import Holder
from ipusim.runs.execute import execute
from ipusim.timeline.kinds import SpanKind
from tests.effort import sampled
from tests.keras_models import layers_of, stage_of
from tests.oracles.test_concurrent_stages import LAYERS
from tests.programs import configure, pipelined
from tests.scenarios import SCENARIOS

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


def configured(names, options):
    system = options.system
    attributes = {
        "machine": system.name,
        "selection_order": names.ipu.config.SelectionOrder[system.selection_order],
        "allow_recompute": options.pipeline.allow_recompute,
        "device_connection__enable_remote_buffers": system.enable_remote_buffers,
        "optimizations__minimum_remote_tensor_size": system.minimum_remote_tensor_size,
        "optimizations__maximum_cross_replica_sum_buffer_size": system.maximum_cross_replica_sum_buffer_size or 0,
    }
    for name in ("num_io_tiles", "place_ops_on_io_tiles", "available_memory_proportion"):
        attributes[f"io_tiles__{name}"] = getattr(system.io_tiles, name)
    share = system.matmuls.poplar_options.availableMemoryProportion
    attributes["matmuls__poplar_options"] = {} if share is None else {"availableMemoryProportion": str(share)}
    configure(names, system.auto_select_ipus, **attributes)


def in_program(names, job, stages=None, mapping=None):
    """Run what the scenario of a Job asks for as a program."""
    tf, options = names.tf, job.request.options
    asked, training, feed = options.pipeline, job.program.shape.training, job.workload(0).feed
    configured(names, options)
    count = job.program.shape.micro_batches * job.system.replicas * job.executions
    elements = [feed.element(index) for index in range(count)]
    arrays = tuple(np.stack(each) for each in zip(*elements, strict=True))
    by_name = {layer["name"]: layer for layer in layers_of(job)}
    written = stages or [
        stage_of(
            [by_name[name] for name in profile.layers],
            labelled=training,
            predictions=asked.outfeed_mask is not None,
        )
        for profile in job.program.stages
    ]

    def optimizer():
        spec = options.optimizer
        plain = tf.train.GradientDescentOptimizer(spec.learning_rate)
        found = plain if spec.type == "sgd" else tf.train.MomentumOptimizer(spec.learning_rate, spec.momentum)
        return names.ipu.optimizers.CrossReplicaOptimizer(found) if job.system.replicas > 1 else found

    return pipelined(
        names,
        written,
        tf.data.Dataset.from_tensor_slices(arrays),
        asked.gradient_accumulation_count,
        optimizer=optimizer if training else None,
        mode=options.outfeed.mode,
        device_mapping=mapping or asked.device_mapping,
        pipeline_schedule=PipelineSchedule[asked.schedule.capitalize()],
        recomputation_mode=RecomputationMode(asked.recomputation_mode),
        **{name: getattr(asked, name) for name in SAME},
    )


#: What depends on the bytes of an element: labels, which no stage of inference reads, are not fed to a program.
FED_KINDS = (SpanKind.INFEED, SpanKind.HOST, SpanKind.HOST_WAIT, SpanKind.SYNC_WAIT)


def same_timeline(found, right, training):
    times = ("start", "end", "bytes", "cause") if training else ()
    for column in ("kind", "ipu", "stage", "micro_batch", "time_step", "link", *times):
        np.testing.assert_array_equal(getattr(found, column), getattr(right, column), err_msg=column)
    alike = ~np.isin(right.kind, FED_KINDS)
    np.testing.assert_array_equal((found.end - found.start)[alike], (right.end - right.start)[alike])


@sampled(2)
@pytest.mark.parametrize("case", CASES)
def test_a_scenario_and_a_program_of_its_layers_give_one_timeline(names, case):
    name, changes = CASES[case]
    job = load_job(SCENARIOS / f"{name}.yaml", changes)
    right, found, training = execute(job), in_program(names, job), job.program.shape.training
    assert found.job.plan == job.plan
    assert found.job.system == job.system
    same_timeline(found.timeline, right.timeline, training)
    assert found.job.notes == job.notes
    for peak, expected in zip(found.job.memory.peaks, job.memory.peaks, strict=True):
        mine, theirs = dict(peak.holders), dict(expected.holders)
        # Nodes read and write more than layers do at their ends; without labels an element is smaller.
        assert mine.pop(Holder.LIVE) == pytest.approx(theirs.pop(Holder.LIVE), rel=0.3)
        if not training:
            assert mine.pop(Holder.STREAMS) <= theirs.pop(Holder.STREAMS)
        assert mine == theirs


SIDE_BY_SIDE = (
    "model.layers.heads.branches=[[{name: left, type: dense, units: 5}], [{name: right, type: dense, units: 3}]]",
    "pipeline.device_mapping=[0, [1, 2], 3]",
    "optimizer={type: sgd, learning_rate: 0.1}",
    "precision=float32",
)


def amounts(works):
    return [(work.products, work.vector, work.sram_bytes) for work in works if not work.is_nothing]


def test_branches_side_by_side_are_a_list_of_functions(names, load):
    """Of the first stage TensorFlow's sum of both branches' gradients is a node, which a scenario does not price."""
    job = load(LAYERS, *SIDE_BY_SIDE)
    dense, side, logits, loss = layers_of(job)
    left, right = ([dict(layer) for layer in branch] for branch in side["branches"])
    last = stage_of([logits, loss])
    stages = [
        stage_of([dense]),
        [stage_of(left), lambda x, _: stage_of(right, labelled=False)(x)],
        lambda a, y, b: last(names.tf.concat([a, b], axis=1), y),
    ]
    found = in_program(names, job, stages, [0, [1, 2], 3]).job
    assert (found.plan, found.system) == (job.plan, job.system)
    for place, (mine, other) in enumerate(zip(found.program.stages, job.program.stages, strict=True)):
        added = [((), VectorWork(4 * 7), 3 * 4 * 4 * 7)] if place == 0 else []
        assert amounts(mine.forward) == amounts(other.forward)
        assert amounts(mine.backward) == added + amounts(other.backward)
        assert amounts(mine.update) == amounts(other.update)
