"""What an argument changes that no other test asks for: each is given another value than its default, and looked for.

Which name and which argument a test stands for says ``tests/tried_names.csv``.
"""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest

from ipusim.base.errors import IpusimError
from ipusim.ipu import (
    custom_ops,
    dataset_benchmark,
    distributed,
    horovod,
    image_ops,
    ipu_compiler,
    loops,
    rand_ops,
    rnn_ops,
)
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.config import IPUConfig, SelectionOrder, configure_ipu_system, get_ipu_config, reset_ipu_configuration
from ipusim.ipu.embedding_ops import HostEmbedding
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.ipu_session_run_hooks import IPULoggingTensorHook
from ipusim.ipu.keras import layers
from ipusim.ipu.optimizers import (
    CrossReplicaOptimizer,
    GradientAccumulationOptimizer,
    GradientDescentOptimizer,
    IpuOptimizer,
    MomentumOptimizer,
    ShardedOptimizer,
)
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, pipeline
from ipusim.ipu.keras import extensions
from ipusim.ipu.tensorflow.train import SessionRunArgs, SessionRunContext, SessionRunValues
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
    configure_ipu_system(config, reset_configuration=False)  # the same again changes nothing
    config.auto_select_ipus = 4
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
        return tf.reduce_sum(layers.Dropout(0.5).call(x * weights, training=training))

    found = losses(stage, ONES)
    assert (set(found) == {8.0}) is not training


@pytest.mark.parametrize("kind", [layers.PopnnLSTM, layers.PopnnGRU])
@pytest.mark.parametrize("training", [True, False])
def test_a_recurrent_layer_drops_of_its_input_in_training(kind, training):
    def stage(x):
        layer = kind(2, kernel_initializer="ones", recurrent_initializer="zeros", dropout=0.5)
        layer.build((2, 1, 4))
        return tf.reduce_sum(layer.call(tf.expand_dims(x, 1), training=training))

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


def test_a_dropout_drops_the_share_that_it_is_asked_to():
    def stage(x):
        weights = tf.get_variable("w", [4], initializer=tf.ones_initializer())
        return tf.reduce_sum(rand_ops.dropout(x * weights, rate=0.75))

    assert {value % 4 for value in losses(stage, ONES)} == {0}


def test_a_sharded_optimizer_hands_its_arguments_on():
    given = {}

    class Own(GradientDescentOptimizer):
        def compute_gradients(self, loss, var_list=None, **kwargs):
            given.update(kwargs)
            return []

    ShardedOptimizer(Own(0.1)).compute_gradients(1.0, aggregation_method=2)
    assert given == {"aggregation_method": 2, "colocate_gradients_with_ops": True}


def test_a_wrapping_optimizer_hands_on_which_slot_is_asked_for():
    given = {}

    class Own(GradientDescentOptimizer):
        def get_slot(self, **kwargs):
            given.update(kwargs)

    IpuOptimizer(Own(0.1)).get_slot(var=1, name="momentum")
    assert given == {"var": 1, "name": "momentum"}


def test_a_hook_logs_as_often_as_it_is_asked_to_in_seconds(caplog):
    hook = IPULoggingTensorHook(every_n_secs=1e-9)
    queue = IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(np.float32([1, 2])).repeat())
    loop = ipu_compiler.compile(lambda: loops.repeat(2, lambda x: hook.log({"x": x}), [], queue))
    hook.begin()
    with tf.Session() as session, caplog.at_level(logging.INFO, "tensorflow"):
        session.run(queue.initializer)
        for _ in range(3):
            session.run(loop)
            hook.after_run(SessionRunContext(SessionRunArgs(loop), session), SessionRunValues(None, None, None))
    assert len(caplog.records) == 3


@pytest.mark.parametrize("operation", [custom_ops.cpu_user_operation, custom_ops.precompiled_user_op])
def test_a_users_gradient_gets_its_attributes(operation, tmp_path):
    library = tmp_path / "users.py"
    library.write_text(
        "def Own(x, attributes):\n    return x\n\n\n"
        "def Own_grad(gradients, outputs, inputs, attributes):\n    return [float(attributes) * gradients[0]]\n"
    )
    names = {"op_name": "Own"} | ({"name": "Mine"} if operation is custom_ops.cpu_user_operation else {})

    def body(x):
        w = tf.get_variable("w", initializer=np.float32(2))
        outs = {"output_types": [np.float32], "output_shapes": [()]}
        (y,) = operation([w * x], str(library), outs=outs, gradient_attributes="5", **names)
        with tf.control_dependencies([GradientDescentOptimizer(0.1).minimize(y)]):
            return y

    program = ipu_compiler.compile(body, [np.float32(3)])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(program)
        assert session.run(tf.global_variables()) == [np.float32(2 - 0.1 * 5 * 3)]


def test_a_stage_assignment_says_the_stage_and_what_comes_before():
    inputs = tf.keras.Input(2)
    first, second = tf.keras.layers.Dense(3), tf.keras.layers.Dense(4)
    model = tf.keras.Model(inputs, second(first(inputs)))
    found = extensions.ModelLayerPipelineStageAssignment(second, 0, pipeline_stage=3)
    assert (found.pipeline_stage, found.inbound_layers, found.layer) == (3, first, second)
    assert len(model.layers) == 3


def test_an_image_is_scaled_before_it_is_normalised():
    program = ipu_compiler.compile(
        lambda x: image_ops.normalise_image(x, np.zeros(3, np.float32), np.ones(3, np.float32), scale=2.0),
        [np.ones((1, 1, 1, 3), np.float32)],
    )
    with tf.Session() as session:
        assert np.ravel(session.run(program))[:3].tolist() == [2, 2, 2]


def test_a_layer_that_normalises_begins_a_model():
    model = tf.keras.Sequential([layers.LayerNormalization(input_shape=(4,))])
    assert [each.shape for each in model.weights] == [(4,), (4,)]


@pytest.mark.parametrize("operation", [custom_ops.cpu_user_operation, custom_ops.precompiled_user_op])
def test_a_users_operation_that_fails_is_told_by_its_name(operation, tmp_path):
    library = tmp_path / "users.py"
    library.write_text("def Build(x, attributes):\n    raise ValueError\n\n\nCallback = Build\n")
    outs = {"output_types": [np.float32], "output_shapes": [()]}

    with pytest.raises(IpusimError, match="'Mine'"):
        ipu_compiler.compile(lambda x: operation([x], str(library), outs=outs, name="Mine"), [np.float32(3)])


@pytest.mark.parametrize("kind", ["FunctionalExtension", "ModelExtension", "SequentialExtension"])
def test_an_extension_hands_a_models_arguments_on(kind):
    class Base:
        def __init__(self, *args):
            self.given = args

    own = type("Own", (getattr(extensions, kind), Base), {})
    assert own(1, 2).given == (1, 2)


@pytest.mark.parametrize("kind", [rnn_ops.PopnnLSTM, rnn_ops.PopnnGRU, rnn_ops.PopnnDynamicGRU, rnn_ops.PopnnAUGRU])
def test_a_recurrent_layer_with_partial_sums_in_half_precision_is_planned_so(kind):
    assert kind(2, partials_dtype=np.float16)._partials == 2
    assert kind(2)._partials == 4
