"""What an argument of a pipeline, an estimator or a model changes that no other test asks for.

Which name and which argument a test stands for says ``tests/tried_names.csv``.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from ipusim.ipu import distributed, horovod, utils
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_multi_worker_strategy import IPUMultiWorkerStrategy
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.optimizers import CrossReplicaOptimizer, GradientDescentOptimizer, MomentumOptimizer
from ipusim.ipu.pipelining_ops import (
    OptimizerFunctionOutput,
    PipelineSchedule,
    PipelineStageOptions,
    RecomputationMode,
    pipeline,
)

X = np.random.default_rng(3).normal(size=(16, 256)).astype(np.float32)


def wide(x, name="w"):
    return tf.matmul(x, tf.get_variable(name, [256, 256]))


def trained(**arguments):
    """Return the pipeline of two stages that trains, and what it sends."""
    tf.reset_default_graph()
    outfeed = IPUOutfeedQueue()
    found = pipeline(
        **{
            "computational_stages": [wide, lambda x: tf.reduce_mean(wide(x, "v") ** 2)],
            "gradient_accumulation_count": 4,
            "infeed_queue": IPUInfeedQueue(tf.data.Dataset.from_tensors(X).repeat()),
            "outfeed_queue": outfeed,
            "optimizer_function": lambda loss: OptimizerFunctionOutput(GradientDescentOptimizer(0.1), loss),
            **arguments,
        }
    )
    return found, outfeed.dequeue()


def times(**arguments):
    return trained(**arguments)[0].summary.times_dict()


HALF = {"partialsType": "half"}


def test_a_pipeline_has_its_name_in_charts_and_files():
    assert trained(name="mine")[0].timeline.info.name == "mine"


def planned(which, **arguments):
    """Return how the products of a pass of the first stage are planned."""
    stage = trained(**arguments)[0].program.stages[0]
    return {work.partials_itemsize for work in getattr(stage, which) if work.products}


@pytest.mark.parametrize("which", ["forward", "backward"])
def test_options_of_products_are_those_of_the_pass(which):
    options = {f"{which}_propagation_stages_poplar_options": [PipelineStageOptions(matmul_options=HALF)] * 2}
    assert planned(which, **options) == {2}
    assert planned(which) == {4}


def test_options_of_convolutions_are_those_of_the_stage():
    def stages():
        return [
            lambda x: tf.keras.layers.Conv2D(4, 3)(tf.reshape(x, (16, 16, 16, 1))),
            lambda x: tf.reduce_mean(x**2),
        ]

    options = {"forward_propagation_stages_poplar_options": [PipelineStageOptions(convolution_options=HALF)] * 2}
    assert planned("forward", computational_stages=stages(), **options) == {2}
    assert planned("forward", computational_stages=stages()) == {4}


def test_the_state_of_an_optimizer_is_loaded_where_it_is_offloaded():
    config = IPUConfig()
    config.auto_select_ipus = 2
    config.device_connection.enable_remote_buffers = True
    learning = {
        "optimizer_function": lambda loss: OptimizerFunctionOutput(MomentumOptimizer(0.1, 0.9), loss),
        "config": config,
    }
    here, there = (times(offload_weight_update_variables=offload, **learning) for offload in (False, True))
    assert here != there


@pytest.mark.parametrize("order", ["Grouped", "Interleaved", "Sequential"])
def test_an_order_of_passes_is_the_one_that_is_asked_for(order):
    assert times(pipeline_schedule=getattr(PipelineSchedule, order))["schedule"] == order.lower()


def test_a_pipeline_runs_as_often_as_it_is_asked_to():
    assert np.shape(trained(repeat_count=3, outfeed_loss=True)[1])[0] == 3 * 4


def test_accumulators_have_the_type_that_is_asked_for():
    with pytest.raises(TypeError, match="the gradient of 'w' is float16 and the variable float32"):
        trained(gradient_accumulation_dtype=np.float16)
    trained()


def of_two_replicas(**arguments):
    config = IPUConfig()
    config.auto_select_ipus = 4
    config.device_connection.enable_remote_buffers = True
    learning = {
        "optimizer_function": lambda loss: OptimizerFunctionOutput(
            CrossReplicaOptimizer(MomentumOptimizer(0.1, 0.9)), loss
        ),
        "offload_weight_update_variables": True,
        "config": config,
    }
    return times(**learning, **arguments)


def test_replicas_store_a_part_of_the_state_each():
    assert of_two_replicas(replicated_optimizer_state_sharding=True) != of_two_replicas()


def test_accumulators_are_loaded_where_they_are_offloaded():
    config = IPUConfig()
    config.auto_select_ipus = 2
    config.device_connection.enable_remote_buffers = True
    here, there = (times(offload_gradient_accumulation_buffers=offload, config=config) for offload in (False, True))
    assert here != there


def test_weights_are_loaded_where_they_are_offloaded():
    parts = {"replicated_optimizer_state_sharding": True, "replicated_weight_sharding": True}
    with pytest.raises(NotImplementedError, match="sharding for pipeline_stage_0 without offloading"):
        of_two_replicas(offload_weights=False, **parts)
    of_two_replicas(offload_weights=True, **parts)


def test_activations_are_offloaded_under_batch_serialization():
    config = IPUConfig()
    config.auto_select_ipus = 1
    config.device_connection.enable_remote_buffers = True
    serial = {
        "batch_serialization_iterations": 2,
        "pipeline_schedule": PipelineSchedule.Sequential,
        "device_mapping": [0, 0],
        "config": config,
    }
    assert times(offload_activations=True, **serial) != times(offload_activations=False, **serial)


def test_results_are_summed_up_in_the_type_that_is_asked_for():
    arguments = {"accumulate_outfeed": True, "accumulate_outfeed_dtype": np.float64, "outfeed_loss": True}
    assert np.asarray(trained(**arguments)[1]).dtype == np.float64


def test_a_masked_result_is_not_sent():
    _, sent = trained(
        computational_stages=[wide, lambda x: (tf.reduce_mean(wide(x, "v") ** 2), x)],
        optimizer_function=lambda loss, _: OptimizerFunctionOutput(GradientDescentOptimizer(0.1), loss),
        outfeed_mask=[True, False],
    )
    assert [each.shape for each in sent] == [(4, 16, 256)]


def test_a_stage_keeps_what_its_mode_of_recomputation_says():
    config = IPUConfig()
    config.allow_recompute = True
    config.auto_select_ipus = 2
    then, inside = (
        times(recomputation_mode=mode, config=config)
        for mode in (
            RecomputationMode.RecomputeThenBackpropagate,
            RecomputationMode.RecomputeAndBackpropagateInterleaved,
        )
    )
    assert then != inside
    assert times(recomputation_mode=RecomputationMode.Auto, config=config) == then


# Hosts.
def test_hosts_reduce_gather_and_broadcast():
    def program():
        own = np.full(1, distributed.rank(), np.float32)
        strategy = distributed.popdist_strategy.PopDistStrategy()
        return (
            distributed.allgather(own).tolist(),
            distributed.allreduce(own, "sum").item(),
            distributed.broadcast(own, root_rank=1).item(),
            strategy.num_replicas_in_sync,
        )

    assert horovod.run(program, np=2) == [([0, 1], 1, 1, 2)] * 2


def test_workers_have_their_variables_where_they_are_asked_to(monkeypatch):
    cluster = {"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    assert IPUMultiWorkerStrategy(resolver, variables_on_host=True).variables_on_host
    assert not IPUMultiWorkerStrategy(resolver).variables_on_host


def test_this_is_not_graphcores_ipu_model():
    assert utils.running_on_ipu_model() is False


# Models of Keras.
def model_of(kind):
    if kind == "sequential":
        return tf.keras.Sequential([tf.keras.layers.Dense(3), tf.keras.layers.Dense(2)], name="mine")
    inputs = tf.keras.Input(2)
    return tf.keras.Model(inputs, tf.keras.layers.Dense(2)(tf.keras.layers.Dense(3)(inputs)), name="mine")


MODELS = pytest.mark.parametrize("kind", ["sequential", "functional"])


@MODELS
def test_options_of_a_model_are_those_of_its_programs(kind):
    model = model_of(kind)
    model.set_asynchronous_callbacks(asynchronous=True)
    model.set_infeed_queue_options(prefetch_depth=3)
    model.set_outfeed_queue_options(buffer_depth=5)
    model.set_gradient_accumulation_options(gradient_accumulation_reduction_method="mean", dtype=np.float16)
    options = model.options
    assert (model.name, options.asynchronous, options.infeed, options.outfeed) == (
        *("mine", True, {"prefetch_depth": 3}, {"buffer_depth": 5}),
    )
    assert (options.reduction_method.name, options.accumulating) == ("MEAN", {"dtype": np.float16})
    model.set_pipelining_options(accumulate_outfeed=True, pipeline_schedule=PipelineSchedule.Sequential)
    assert (options.accumulate_outfeed, options.pipelining) == (
        *(True, {"pipeline_schedule": PipelineSchedule.Sequential}),
    )


def test_the_stages_of_a_sequential_model_are_printed_in_lines_of_a_length():
    model, lines = model_of("sequential"), []
    model.set_pipeline_stage_assignment([0, 1])
    model.print_pipeline_stage_assignment_summary(line_length=50, print_fn=lines.append)
    assert {len(line) for line in lines if set(line) == {"_"} or set(line) == {"="}} == {50}
