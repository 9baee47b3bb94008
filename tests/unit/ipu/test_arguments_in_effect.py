"""What an argument changes that no other test asks for: each is given another value than its default, and looked for.

Which name and which argument a test stands for says ``tests/tried_names.csv``.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from ipusim.ipu import dataset_benchmark, distributed, horovod, ipu_compiler
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.config import IPUConfig, SelectionOrder, configure_ipu_system, get_ipu_config, reset_ipu_configuration
from ipusim.ipu.embedding_ops import HostEmbedding
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.keras import layers
from ipusim.ipu.optimizers import (
    CrossReplicaOptimizer,
    GradientAccumulationOptimizer,
    IpuOptimizer,
    MomentumOptimizer,
    ShardedOptimizer,
)
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, pipeline
from ipusim.ipu.utils import create_ipu_config, set_recomputation_options

ONES = np.ones((2, 4), np.float32)


# Optimizers.
@pytest.mark.parametrize(
    "kind", [IpuOptimizer, CrossReplicaOptimizer, ShardedOptimizer, lambda opt: GradientAccumulationOptimizer(opt, 1)]
)
def test_an_optimizer_counts_its_weight_updates(kind):
    step = tf.train.get_or_create_global_step()

    def body(loss):
        optimizer = kind(MomentumOptimizer(0.1, 0.9))
        w = tf.get_variable("w", initializer=np.float32(2))
        pairs = optimizer.compute_gradients(loss * w)
        with tf.control_dependencies([optimizer.apply_gradients(pairs, global_step=step)]):
            return loss

    program = ipu_compiler.compile(body, [np.float32(1)])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run([program])
        assert session.run(step) == 1


# The device.
def test_a_second_configuration_waits_until_the_first_is_forgotten():
    config = IPUConfig()
    config.auto_select_ipus = 2
    configure_ipu_system(config)
    assert [each.auto_select_ipus for each in get_ipu_config()] == [2]
    with pytest.raises(ValueError, match="already been configured"):
        configure_ipu_system(config, reset_configuration=False)
    reset_ipu_configuration()
    configure_ipu_system(config, reset_configuration=False)


def test_an_old_programs_configuration_keeps_its_activations():
    assert set_recomputation_options(create_ipu_config(), allow_recompute=False).allow_recompute is False
    assert set_recomputation_options(create_ipu_config()).allow_recompute is True


@pytest.mark.parametrize("order", ["AUTO", "ZIGZAG", "SNAKE", "HOOF"])
def test_an_order_of_ipus_is_the_one_of_the_device(order):
    config = IPUConfig()
    config.selection_order = getattr(SelectionOrder, order)
    assert config.selection_order.value == order


# Hosts.
@pytest.mark.parametrize("call", [horovod.allgather, horovod.broadcast, distributed.allgather, distributed.broadcast])
def test_hosts_must_agree_on_the_name_of_a_collective(call):
    beside = {"root_rank": 0} if call is horovod.broadcast else {}
    name = "name" if call in (horovod.allgather, horovod.broadcast) else "tensor_name"

    def program():
        return call(np.ones(2), **beside, **{name: f"of {horovod.rank()}"})

    with pytest.raises(Exception, match="of 0"):
        horovod.run(program, np=2)


def test_a_benchmark_of_a_queue_prints_where_it_is_asked_to(capsys):
    queue = IPUInfeedQueue(tf.data.Dataset.from_tensors(np.float32(1)).repeat())
    found = dataset_benchmark.infeed_benchmark(queue, 1, 2, print_stats=False).numpy()
    assert capsys.readouterr().out == ""
    assert json.loads(found[0])["epochs"][0]["elements_processed"] == 2
    dataset_benchmark.infeed_benchmark(queue, 1, 2).numpy()
    assert "Epoch 0" in capsys.readouterr().out


@pytest.mark.parametrize("benchmark", [dataset_benchmark.dataset_benchmark, dataset_benchmark.infeed_benchmark])
def test_a_benchmark_copies_each_element_or_not(benchmark, monkeypatch):
    copied = []
    monkeypatch.setattr(np, "copyto", lambda held, array: copied.append(array.nbytes))
    dataset = tf.data.Dataset.from_tensors(np.float32(1)).repeat()
    given = dataset if benchmark is dataset_benchmark.dataset_benchmark else IPUInfeedQueue(dataset)
    benchmark(given, 1, 3, print_stats=False, do_memcpy=False).numpy()
    assert copied == []
    benchmark(given, 1, 3, print_stats=False).numpy()
    assert copied == [4, 4, 4]


# Keras.
def losses(stage, elements):
    """Return the losses that a stage gives in training."""
    outfeed = IPUOutfeedQueue()
    pipeline(
        [lambda x: x, stage],
        4,
        infeed_queue=IPUInfeedQueue(tf.data.Dataset.from_tensors(elements).repeat()),
        outfeed_queue=outfeed,
        optimizer_function=lambda loss: OptimizerFunctionOutput(IpuOptimizer(MomentumOptimizer(0, 0)), loss),
        outfeed_loss=True,
    )
    return np.ravel(outfeed.dequeue())


@pytest.mark.parametrize("training", [True, False])
def test_a_call_of_a_dropout_says_whether_it_drops(training):
    def stage(x):
        weights = tf.get_variable("w", [4], initializer=tf.ones_initializer())
        return tf.reduce_sum(layers.Dropout(0.5)(x * weights, training=training))

    found = losses(stage, ONES)
    assert (set(found) == {8.0}) is not training


@pytest.mark.parametrize("kind", [layers.PopnnLSTM, layers.PopnnGRU])
@pytest.mark.parametrize("training", [True, False])
def test_a_recurrent_layer_drops_of_its_input_in_training(kind, training):
    def stage(x):
        layer = kind(2, kernel_initializer="ones", recurrent_initializer="zeros", dropout=0.5)
        return tf.reduce_sum(layer(tf.expand_dims(x, 1), training=training))

    found = losses(stage, ONES)
    assert (len(set(found)) == 1) is not training


def test_a_model_takes_its_layers_and_its_name():
    inputs = tf.keras.Input(2)
    functional = tf.keras.Model(inputs, tf.keras.layers.Dense(3)(inputs), name="mine")
    sequential = tf.keras.Sequential([tf.keras.layers.Dense(3)], name="mine")
    assert (functional.name, sequential.name) == ("mine", "mine")
    assert [len(functional.layers), len(sequential.layers)] == [2, 1]


def test_a_table_brings_ids_into_its_range_or_refuses_them():
    table = HostEmbedding("table", np.float32([[1], [2]]))

    def found(clip):
        outfeed = IPUOutfeedQueue()
        queue = IPUInfeedQueue(tf.data.Dataset.from_tensors(np.int32([0, 9])).repeat())
        stages = [lambda ids: table.lookup(ids, clip_indices=clip), lambda rows: rows]
        pipeline(stages, 2, infeed_queue=queue, outfeed_queue=outfeed)
        return np.ravel(outfeed.dequeue()).tolist()

    assert found(True) == [1, 2, 1, 2]
    with pytest.raises(ValueError, match="from 0 to 1"):
        found(False)
