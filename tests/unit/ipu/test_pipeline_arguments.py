"""What an argument of a pipeline changes that no other test asks for."""

from __future__ import annotations

import numpy as np
import pytest

from tests.programs import configure, hosted_names, run

X = np.random.default_rng(3).normal(size=(16, 256)).astype(np.float32)


@pytest.fixture
def names():
    with hosted_names() as found:
        yield found


def trained(names, ipus=2, device=None, learning="plain", **arguments):
    """A pipeline of two stages that trains, as it ran."""
    tf, ipu = names.tf, names.ipu
    tf.reset_default_graph()
    tf.set_random_seed(1)
    configure(names, ipus, **(device or {}))
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(X).repeat())
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def wide(x, name="w"):
        return tf.matmul(x, tf.get_variable(name, [256, 256]))

    def optimizer_function(loss, *_):
        optimizer = tf.train.GradientDescentOptimizer(0.1)
        if learning != "plain":
            optimizer = tf.train.MomentumOptimizer(0.1, 0.9)
        if learning == "replicas":
            optimizer = ipu.optimizers.CrossReplicaOptimizer(optimizer)
        return ipu.pipelining_ops.OptimizerFunctionOutput(optimizer, loss)

    chosen = {
        "computational_stages": [wide, lambda x: tf.reduce_mean(wide(x, "v") ** 2)],
        "gradient_accumulation_count": 4,
        "infeed_queue": infeed,
        "outfeed_queue": outfeed,
        "optimizer_function": optimizer_function,
        **arguments,
    }
    return run(names, lambda: ipu.pipelining_ops.pipeline(**chosen), outfeed, [infeed])


def length(*arguments, **keywords):
    """How long a pipeline takes."""
    return int(trained(*arguments, **keywords).timeline.end.max())


def test_a_pipeline_has_its_name_in_charts_and_files(names):
    assert trained(names, name="mine").timeline.info.name == "mine"


@pytest.mark.parametrize("which", ["forward", "backward"])
def test_options_of_products_are_those_of_the_pass(names, which):
    def planned(**arguments):
        stage = trained(names, **arguments).job.program.stages[0]
        return {work.partials_itemsize for work in getattr(stage, which) if work.products}

    half = names.ipu.pipelining_ops.PipelineStageOptions(matmul_options={"partialsType": "half"})
    assert planned(**{f"{which}_propagation_stages_poplar_options": [half] * 2}) == {2}
    assert planned() == {4}


REMOTE = {"device_connection__enable_remote_buffers": True}


@pytest.mark.parametrize("argument", ["offload_weight_update_variables", "offload_gradient_accumulation_buffers"])
def test_what_is_offloaded_is_loaded(names, argument):
    here, there = (length(names, device=REMOTE, learning="momentum", **{argument: each}) for each in (False, True))
    assert here != there


@pytest.mark.parametrize("order", ["Grouped", "Interleaved", "Sequential"])
def test_an_order_of_passes_is_the_one_that_is_asked_for(names, order):
    schedule = getattr(names.ipu.pipelining_ops.PipelineSchedule, order)
    assert trained(names, pipeline_schedule=schedule).job.schedule.name == order.lower()


def test_a_pipeline_runs_as_often_as_it_is_asked_to(names):
    assert np.shape(trained(names, repeat_count=3, outfeed_loss=True).sent)[0] == 3 * 4


@pytest.mark.parametrize(
    "dtype", [np.float16, "float16", lambda variable: np.float16], ids=["type", "name", "function"]
)
def test_accumulators_have_the_type_that_is_asked_for(names, dtype):
    """The optimizer gets them as they are, as it does at Graphcore's."""
    with pytest.raises(TypeError, match="float16"):
        trained(names, gradient_accumulation_dtype=dtype)

    class Casting(names.ipu.optimizers.IpuOptimizer):
        def apply_gradients(self, grads_and_vars, *arguments, **keywords):
            pairs = [(names.tf.cast(gradient, variable.dtype), variable) for gradient, variable in grads_and_vars]
            return super().apply_gradients(pairs, *arguments, **keywords)

    optimizer = Casting(names.tf.train.GradientDescentOptimizer(0.1))
    exact, rounded = (
        trained(
            names,
            gradient_accumulation_dtype=each,
            optimizer_function=lambda loss: names.ipu.pipelining_ops.OptimizerFunctionOutput(optimizer, loss),
        )
        for each in (None, dtype)
    )
    works = [each.job.program.stages[0].backward[-1].sram_bytes for each in (exact, rounded)]
    assert works == [256 * 256 * (4 + 2 * 4), 256 * 256 * (4 + 2 * 2)]
    np.testing.assert_allclose(rounded.variables["w"], exact.variables["w"], atol=1e-3)
    assert not np.array_equal(rounded.variables["w"], exact.variables["w"])


def test_replicas_store_a_part_of_the_state_each(names):
    arguments = {"ipus": 4, "device": REMOTE, "learning": "replicas", "offload_weight_update_variables": True}
    assert length(names, **arguments, replicated_optimizer_state_sharding=True) != length(names, **arguments)
    parts = {"replicated_optimizer_state_sharding": True, "replicated_weight_sharding": True}
    with pytest.raises(NotImplementedError, match="sharding for pipeline_stage_0 without offloading"):
        trained(names, **arguments, offload_weights=False, **parts)
    trained(names, **arguments, offload_weights=True, **parts)


def test_activations_are_offloaded_under_batch_serialization(names):
    serial = {
        "batch_serialization_iterations": 2,
        "pipeline_schedule": names.ipu.pipelining_ops.PipelineSchedule.Sequential,
        "device_mapping": [0, 0],
        "device": REMOTE,
        "ipus": 1,
    }
    assert length(names, offload_activations=True, **serial) != length(names, offload_activations=False, **serial)


def test_results_are_summed_up_in_the_type_that_is_asked_for(names):
    plain = trained(names, outfeed_loss=True)
    for dtype in (None, np.float64):
        arguments = {"accumulate_outfeed": True, "accumulate_outfeed_dtype": dtype, "outfeed_loss": True}
        summed = trained(names, **arguments)
        assert summed.sent.dtype == dtype or np.float32
        np.testing.assert_allclose(summed.sent, [plain.sent.sum()], rtol=1e-6)
    last, before = (each.job.program.stages[-1] for each in (summed, plain))
    assert len(last.forward) == len(before.forward) + 1  # the sum on the IPU


def test_a_masked_result_is_not_sent(names):
    tf = names.tf

    def last(x):
        return tf.reduce_mean(tf.matmul(x, tf.get_variable("v", [256, 256])) ** 2), x

    def first(x):
        return tf.matmul(x, tf.get_variable("w", [256, 256]))

    found = trained(names, computational_stages=[first, last], outfeed_mask=[True, False])
    assert [each.shape for each in found.sent] == [(4, 16, 256)]
    with pytest.raises(ValueError, match="has 2 outputs, but the `outfeed_mask` has elements 1"):
        trained(names, computational_stages=[first, last], outfeed_mask=[True])


def test_a_stage_keeps_what_its_mode_of_recomputation_says(names):
    modes = names.ipu.pipelining_ops.RecomputationMode
    then, inside, auto = (
        trained(names, recomputation_mode=mode, device={"allow_recompute": True}).spans
        for mode in (modes.RecomputeThenBackpropagate, modes.RecomputeAndBackpropagateInterleaved, modes.Auto)
    )
    assert then != inside
    assert auto == then


def test_a_rate_from_the_infeed_is_that_of_the_last_micro_batch(names):
    """Plain gradients of one variable: the change by the rate of the fourth element, times the sum of gradients."""
    tf, ipu = names.tf, names.ipu
    configure(names, 2)
    rates = np.float32([1, 2, 3, 0.5] * 2)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(rates))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def last(x, rate):
        return rate, tf.get_variable("w", [], initializer=tf.ones_initializer()) * x

    def network():
        return ipu.pipelining_ops.pipeline(
            [lambda rate: (tf.ones([]), rate), last],
            gradient_accumulation_count=4,
            repeat_count=2,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=lambda rate, loss: ipu.pipelining_ops.OptimizerFunctionOutput(
                tf.train.GradientDescentOptimizer(rate), loss
            ),
        )

    found = run(names, network, outfeed, [infeed])
    np.testing.assert_array_equal(found.sent[0], rates)
    assert found.variables["w"] == 1 - 2 * 0.5 * 4


def test_concurrent_stages_learn_as_the_same_stages_in_turn(names):
    tf, ipu = names.tf, names.ipu

    def dense(x, units, name):
        draw = tf.initializers.random_normal(seed=len(name), stddev=0.1)
        return tf.tanh(tf.matmul(x, tf.get_variable(name, [int(x.shape[1]), units], initializer=draw)))

    def network(stages, mapping):
        tf.reset_default_graph()
        configure(names, 4)
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors((X, np.int32(3))).repeat())
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        made = lambda: ipu.pipelining_ops.pipeline(  # noqa: E731
            stages,
            gradient_accumulation_count=12,
            repeat_count=3,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            outfeed_loss=True,
            device_mapping=mapping,
            optimizer_function=lambda loss: ipu.pipelining_ops.OptimizerFunctionOutput(
                tf.train.MomentumOptimizer(0.1, 0.9), loss
            ),
        )
        return run(names, made, outfeed, [infeed])

    def first(x, label):
        return dense(x, 8, "a"), label

    def last(left, label, right):
        return tf.reduce_mean((left + right) ** 2) * tf.cast(label, tf.float32)

    left = lambda x, label: (dense(x, 8, "left"), label)  # noqa: E731
    right = lambda x, label: dense(x, 8, "rightmost")  # noqa: E731
    beside = network([first, [left, right], last], [0, [1, 2], 3])
    turn = network([first, lambda x, label: (*left(x, label), right(x, label)), last], [0, 1, 3])
    assert beside.job.plan.shape.sizes == (1, 2, 1)
    assert [stage.name for stage in beside.job.program.stages] == [
        *("pipeline_stage_0", "pipeline_stage_1_0", "pipeline_stage_1_1", "pipeline_stage_2"),
    ]
    np.testing.assert_allclose(beside.sent, turn.sent, rtol=1e-6)
    for name, value in turn.variables.items():
        np.testing.assert_allclose(beside.variables[name], value, rtol=1e-5, atol=1e-7)


def test_stages_of_one_ipu_share_a_variable_and_stages_of_two_do_not(names):
    tf, ipu = names.tf, names.ipu

    def network(mapping, ipus):
        tf.reset_default_graph()
        configure(names, ipus)
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(np.float32([2.0])).repeat())
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def shared(x):
            with tf.variable_scope("all", reuse=tf.AUTO_REUSE):
                return x * tf.get_variable("w", [1], initializer=tf.ones_initializer())

        made = lambda: ipu.pipelining_ops.pipeline(  # noqa: E731
            [shared, lambda x: x + 1, lambda x: tf.reduce_sum(shared(x))],
            gradient_accumulation_count=6,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            device_mapping=mapping,
            optimizer_function=lambda loss: ipu.pipelining_ops.OptimizerFunctionOutput(
                tf.train.GradientDescentOptimizer(0.01), loss
            ),
        )
        return run(names, made, outfeed, [infeed])

    found = network([0, 1, 0], 2)
    np.testing.assert_allclose(found.variables["all/w"], [1 - 0.01 * 6 * (2 * 2 + 1)])
    assert [stage.parameter_bytes for stage in found.job.program.stages] == [4, 0, 0]
    text = r"with ID 2 is trying to use an input \(all/w\) which is already used by the PipelineStage with ID 0"
    with pytest.raises(NotImplementedError, match=text):
        network([0, 1, 2], 4)


def test_replicas_average_gradients_where_the_optimizer_says_so(names):
    """Each element goes to one replica; the same sum of gradients, halved by the mean over two replicas."""
    one, two = trained(names), trained(names, ipus=4, learning="replicas")
    assert two.job.system.replicas == 2
    assert two.sent[0].shape == (4, 2)
    assert one.sent[0].shape == (4,)
    with pytest.raises(NotImplementedError, match="replicas that learn by themselves"):
        trained(names, ipus=4)
