"""Effects of Graphcore's names and arguments that no other test looks for, each with another value than its default."""

import json
import logging
import operator
from functools import partial

import numpy as np
import pytest

from ipusim.base.errors import IpusimError
from tests.programs import configure, run
from tests.traced_training import on_ipus

ROWS = np.float32([[1, 2, 3, 4], [5, 6, 7, 8]])


def queues(names, *arrays):
    """An infeed that repeats an element, and an outfeed."""
    dataset = names.tf.data.Dataset.from_tensors(arrays if len(arrays) > 1 else arrays[0]).repeat()
    return names.ipu.ipu_infeed_queue.IPUInfeedQueue(dataset), names.ipu.ipu_outfeed_queue.IPUOutfeedQueue()


def looped(names, body, *arrays, iterations=2):
    """What a loop sends of the results of a body."""
    infeed, outfeed = queues(names, *arrays)

    def network():
        return names.ipu.loops.repeat(iterations, lambda *given: outfeed.enqueue(body(*given)), [], infeed)

    return run(names, network, outfeed, [infeed])


# Queues and data.
def test_a_queue_is_dequeued_in_a_program_and_ends(names):
    infeed, outfeed = queues(names, np.float32(1), np.float32(2))
    assert (infeed.number_of_tuple_elements, infeed.dequeued) == (2, False)
    body = lambda x, y: outfeed.enqueue(x + y)  # noqa: E731
    loop = names.ipu.ipu_compiler.compile(lambda: names.ipu.loops.repeat(3, body, [], infeed))
    assert infeed.dequeued
    with names.tf.Session() as session:
        session.run(infeed.initializer)
        session.run(loop)
        assert session.run(outfeed.dequeue()).tolist() == [3, 3, 3]
        assert session.run([infeed.deleter, outfeed.deleter]) == [None, None]


def test_a_data_set_of_whole_buffers_drops_the_elements_that_fill_none(names):
    dataset = names.ipu.data.ops.dataset_ops.BufferDataset(names.tf.data.Dataset.range(8), 3)
    following = names.tf.data.make_one_shot_iterator(dataset.batch(100)).get_next()
    with names.tf.Session() as session:
        assert session.run(following).tolist() == [0, 1, 2, 3, 4, 5]


# The device.
def test_a_second_configuration_waits_until_the_first_is_forgotten(names):
    config = names.ipu.config
    first = config.IPUConfig()
    first.auto_select_ipus = 2
    config.configure_ipu_system(first)
    assert [each.auto_select_ipus for each in config.get_ipu_config()] == [2]
    config.configure_ipu_system(first, reset_configuration=False)  # the same again changes nothing
    first.auto_select_ipus = 4
    with pytest.raises(ValueError, match="already been configured"):
        config.configure_ipu_system(first, reset_configuration=False)
    config.reset_ipu_configuration()
    config.configure_ipu_system(first, reset_configuration=False)


@pytest.mark.parametrize(
    "path",
    [
        "ipu_multi_worker_strategy.IPUMultiWorkerStrategy",
        "horovod.ipu_horovod_strategy.IPUHorovodStrategy",
        "horovod.ipu_multi_replica_strategy.IPUMultiReplicaStrategy",
        "distributed.popdist_strategy.PopDistStrategy",
    ],
)
def test_a_strategys_device_is_that_of_the_queues_in_its_scope(names, path):
    resolver = names.tf.distribute.cluster_resolver.TFConfigClusterResolver
    given = [resolver()] if "worker" in path else []
    with operator.attrgetter(path)(names.ipu)(*given, ipu_device="/device:IPU:1").scope():
        assert names.ipu.ipu_outfeed_queue.IPUOutfeedQueue().ordinal == 1


# Optimizers.
@pytest.mark.parametrize(
    "kind", ["IpuOptimizer", "CrossReplicaOptimizer", "ShardedOptimizer", "GradientAccumulationOptimizer"]
)
def test_an_optimizer_counts_its_weight_updates(names, kind):
    tf = names.tf
    step = tf.train.get_or_create_global_step()
    options = {"num_mini_batches": 1} if kind == "GradientAccumulationOptimizer" else {}

    def body(x):
        optimizer = getattr(names.ipu.optimizers, kind)(tf.train.MomentumOptimizer(0.1, 0.9), **options)
        pairs = optimizer.compute_gradients(x * tf.get_variable("w", initializer=np.float32(2)))
        with tf.control_dependencies([optimizer.apply_gradients(pairs, global_step=step)]):
            return tf.identity(x)

    assert looped(names, body, np.float32(1)).variables["global_step"] == 2


def test_optimizers_hand_on_arguments_names_and_slots(names):
    optimizers, sgd, given = names.ipu.optimizers, names.tf.train.GradientDescentOptimizer, {}

    class Own(sgd):
        def compute_gradients(self, loss, var_list=None, **kwargs):
            given.update(kwargs)
            return []

        def get_slot(self, **kwargs):
            given.update(kwargs)

    optimizers.ShardedOptimizer(Own(0.1)).compute_gradients(1.0, aggregation_method=2)
    assert given == {"aggregation_method": 2, "colocate_gradients_with_ops": True}
    optimizers.IpuOptimizer(Own(0.1)).get_slot(var=1, name="momentum")
    assert given["name"] == "momentum"
    assert optimizers.IpuOptimizer(sgd(0.1)).get_name() == "GradientDescent"
    for kind in ("IpuOptimizer", "CrossReplicaOptimizer"):
        assert getattr(optimizers, kind)(sgd(0.1), name="mine").get_name() == "mine"


def offloaded(names, make, ipus, **attributes):
    """The spans of a loop on such a device, which trains with an accumulating optimizer with offloaded state."""
    tf = names.tf
    tf.reset_default_graph()
    configure(names, ipus, **attributes)

    def body(x):
        w = tf.get_variable("w", initializer=np.ones(64, np.float32))
        optimizer = make(offload_weight_update_variables=True)
        with tf.control_dependencies([optimizer.minimize(tf.reduce_sum(w * x))]):
            return tf.identity(x)

    return looped(names, body, np.float32(1)).spans


@pytest.mark.parametrize(
    ("simple", "any_other", "averages"),
    [
        ("GradientAccumulationOptimizer", "GradientAccumulationOptimizerV2", False),
        ("CrossReplicaGradientAccumulationOptimizer", "CrossReplicaGradientAccumulationOptimizerV2", True),
    ],
)
def test_an_accumulating_optimizer_takes_any_other_and_shards_its_state_where_it_is_asked_to(
    names, simple, any_other, averages
):
    simple, any_other = (getattr(names.ipu.optimizers, each) for each in (simple, any_other))
    adam = names.tf.train.AdamOptimizer(0.1)
    assert simple(adam, 2, verify_usage=False, name="mine").get_name() == "mine"
    with pytest.raises(IpusimError, match=r"because verify_usage is True, got (Adam|CrossReplicaOptimizer): Gradient"):
        simple(adam, 2)

    def placed(**options):
        inner = adam if averages else names.ipu.optimizers.CrossReplicaOptimizer(adam)
        make = partial(any_other, inner, 2, **options)
        return offloaded(names, make, 2, device_connection__enable_remote_buffers=True)

    plain = placed()
    assert plain != placed(replicated_optimizer_state_sharding=True)
    with pytest.raises(IpusimError, match="the gradient of 'w' is float16 and the variable float32"):
        placed(dtype=np.float16)


def test_an_attached_machine_has_remote_memory_without_an_attribute(names):
    kinds = names.ipu.config.DeviceConnectionType

    def spans(**attributes):
        make = partial(names.ipu.optimizers.GradientAccumulationOptimizerV2, names.tf.train.AdamOptimizer(0.1), 2)
        return offloaded(names, make, 1, **attributes)

    plain = spans(device_connection__type=kinds.ALWAYS)
    assert plain == spans() == spans(device_connection__enable_remote_buffers=True)
    with pytest.raises(IpusimError, match="does not support remote memory"):
        spans(device_connection__type=kinds.ON_DEMAND)


def test_a_seed_may_be_negative(names):
    names.ipu.utils.reset_ipu_seed(-(2**31))


# Layers and operations.
@pytest.mark.parametrize("function", ["group_norm", "instance_norm", "layer_norm"])
def test_variables_of_a_normalisation_are_in_the_collections_that_are_said(names, function):
    getattr(names.ipu.normalization_ops, function)(ROWS[:, None, None], variables_collections={"gamma": ["mine"]})
    assert [each.op.name.rpartition("/")[2] for each in names.tf.get_collection("mine")] == ["gamma"]


def test_a_dropout_drops_the_share_that_it_is_asked_to(names):
    found = on_ipus(lambda: names.ipu.rand_ops.dropout(np.ones((64, 64), np.float32), rate=0.75))
    assert set(np.ravel(found)) == {0, 4}
    assert np.mean(found == 0) == pytest.approx(0.75, abs=0.05)


def test_gates_of_an_lstm_forget_from_a_bias_of_one_on(names):
    for unit, expected in ((True, [0, 1, 0, 0]), (False, [0, 0, 0, 0])):
        layer = names.ipu.keras.layers.PopnnLSTM(1, unit_forget_bias=unit)
        layer.build((2, 3, 4))
        with names.tf.Session() as session:
            session.run(names.tf.global_variables_initializer())
            assert session.run(layer.weights[2]).tolist() == expected


def test_rows_of_a_keras_embedding_begin_as_it_is_said_and_are_the_same_in_training(names):
    values = np.arange(10, dtype=np.float32).reshape(5, 2)
    layer = names.ipu.keras.layers.Embedding(5, 2, embeddings_initializer=names.tf.constant_initializer(values))
    inputs = names.tf.constant([1, 4])
    rows = [layer(inputs, training=each) for each in (True, False)]
    with names.tf.Session() as session:
        session.run(names.tf.global_variables_initializer())
        first, second = session.run(rows)
    assert first.tolist() == second.tolist() == [[2, 3], [8, 9]]


@pytest.mark.parametrize("operation", ["cpu_user_operation", "precompiled_user_op"])
def test_a_users_operation_that_fails_is_told_by_its_name(names, operation, tmp_path):
    library = tmp_path / "users.py"
    library.write_text("def Build(x, attributes):\n    raise ValueError\n\n\nCallback = Build\n")
    outs = {"output_types": [np.float32], "output_shapes": [()]}
    call = getattr(names.ipu.custom_ops, operation)
    with pytest.raises(IpusimError, match="'Mine'"):
        on_ipus(lambda: call([np.float32(3)], str(library), outs=outs, name="Mine"))


def test_a_table_is_looked_up_between_its_instructions_alone(names):
    tf, spec = names.tf, names.ipu.embedding_ops.HostEmbeddingOptimizerSpec(0.1)
    rows = tf.get_variable("rows", [4, 2], initializer=tf.ones_initializer(), use_resource=True)
    slots = spec.create_slot_variables(rows, "rows")
    register = spec.create_register_instruction(rows, slots, "rows")
    deregister = spec.create_deregister_instruction(rows, slots, "rows")
    infeed, outfeed = queues(names, np.int32([1, 3]))

    def body(ids):
        found = spec.create_lookup_instruction(rows, ids, slots, "TOKEN", "rows")
        loss = tf.reduce_sum(found * tf.get_variable("w", initializer=np.float32(1)))
        return [outfeed.enqueue(found), tf.train.GradientDescentOptimizer(0.0).minimize(loss)]

    loop = names.ipu.ipu_compiler.compile(lambda: names.ipu.loops.repeat(2, body, [], infeed))
    with tf.Session() as session:
        session.run([infeed.initializer, tf.global_variables_initializer()])
        session.run(register)
        session.run(loop)
        session.run(deregister)
        assert session.run(outfeed.dequeue()).shape == (2, 2, 2)
        with pytest.raises(IpusimError):
            session.run(loop)


# Hooks and summaries.
@pytest.mark.parametrize(("often", "logged"), [({"every_n_iter": 2}, [1, 1, 2]), ({"every_n_secs": 1e-9}, [1, 2, 3])])
def test_a_hook_logs_after_the_runs_that_are_due(names, often, logged, caplog):
    tf = names.tf
    hook = names.ipu.ipu_session_run_hooks.IPULoggingTensorHook(**often)
    infeed, _ = queues(names, np.float32(1))
    loop = names.ipu.ipu_compiler.compile(lambda: names.ipu.loops.repeat(2, lambda x: hook.log({"x": x}), [], infeed))
    lines = []
    tf.get_logger().propagate = True
    with caplog.at_level(logging.INFO, "tensorflow"), tf.train.MonitoredSession(hooks=[hook]) as session:
        session.run_step_fn(lambda step_context: step_context.session.run(infeed.initializer))
        for _ in range(3):
            session.run(loop)
            lines.append(sum("x = " in each.getMessage() for each in caplog.records))
    assert lines == logged


def test_a_summary_is_in_its_collections_and_describes_itself(names):
    tf, summary_ops = names.tf, names.ipu.summary_ops
    report = summary_ops.ipu_compile_summary("report", tf.no_op(), collections=["mine"])
    described = summary_ops.tensor_summary(
        "mine", tf.constant(1.0), summary_description="a number", collections=["mine"], display_name="My number"
    )
    assert tf.get_collection("mine") == [report, described]
    with tf.Session() as session:
        (value,) = tf.Summary.FromString(session.run(described)).value
    assert (value.metadata.summary_description, value.metadata.display_name) == ("a number", "My number")


def of_name(names, name, count):
    """A compiled pipeline of that name, and what begins it."""
    infeed, outfeed = queues(names, np.float32(3))
    given = {"infeed_queue": infeed, "outfeed_queue": outfeed, "name": name}
    stages = [lambda x: x * 2.0, lambda x: x]
    compiled = names.ipu.ipu_compiler.compile(lambda: names.ipu.pipelining_ops.pipeline(stages, count, **given))
    return compiled, infeed.initializer


def test_events_are_the_programs_that_a_run_executed(names):
    summary_ops, utils = names.ipu.summary_ops, names.ipu.utils
    (first, begin), (second, begin_too) = (of_name(names, *each) for each in (("first", 4), ("second", 8)))
    summary = summary_ops.ipu_compile_summary("report", [first])
    both = summary_ops.ipu_compile_summary("both", [first, second])
    with names.tf.Session() as session:
        session.run([begin, begin_too])
        (event,) = utils.extract_all_events(session.run(summary))
        assert (event.type, event.module_name) == (utils.IpuTraceEventType.EXECUTE, "first")
        events = utils.extract_all_events(session.run(both))
    assert sorted(event.module_name for event in events) == ["first", "second"]
    assert utils.extract_all_types_from_event_trace(events) == [utils.IpuTraceEventType.EXECUTE] * 2
    reports = dict(utils.extract_execute_reports(events))
    assert [json.loads(reports[name])["count"] for name in ("first", "second")] == [4, 8]
    assert utils.extract_compile_reports(events) == utils.extract_poplar_serialized_graphs(events) == []
    assert utils.extract_all_strings_from_event_trace(events) == "".join(
        f"{'-' * 70}\n=> Execute: {event.module_name}\n{event.execution_report}\n" for event in events
    )


def test_a_session_that_runs_no_program_has_no_events(names):
    summary = names.ipu.summary_ops.ipu_compile_summary("report", names.tf.no_op())
    with names.tf.Session() as session:
        assert names.ipu.utils.extract_all_strings_from_event_trace(session.run(summary)) == ""


# Keras.
def test_a_stage_assignment_of_a_model_says_the_stage_and_the_layers_before(names):
    extensions, keras = names.ipu.keras.extensions, names.keras
    inputs = keras.Input(2)
    first, second = keras.layers.Dense(3), keras.layers.Dense(4)
    keras.Model(inputs, second(first(inputs)))
    found = extensions.ModelLayerPipelineStageAssignment(second, 0, pipeline_stage=3)
    assert (found.pipeline_stage, found.inbound_layers, found.layer) == (3, first, second)


@pytest.mark.parametrize("kind", ["FunctionalExtension", "ModelExtension", "SequentialExtension"])
def test_an_extension_hands_a_models_arguments_on(names, kind):
    class Base:
        def __init__(self, *args):
            self.given = args

    own = type("Own", (getattr(names.ipu.keras.extensions, kind), Base), {})
    assert own(1, 2).given == (1, 2)


def test_recomputation_keeps_the_input_of_the_layer_that_says_so(names):
    """As ``recomputation_checkpoint`` does: the layer marks its nodes, which nothing else does."""
    from ipusim.ipu.graph.checkpoints import CHECKPOINT  # noqa: PLC0415

    x = names.tf.placeholder(np.float32, [2, 3])
    outputs = names.ipu.keras.layers.RecomputationCheckpoint()(x), names.tf.identity(x)
    assert [CHECKPOINT in each.op.node_def.attr for each in outputs] == [True, False]
