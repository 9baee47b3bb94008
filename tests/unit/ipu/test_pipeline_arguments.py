"""What an argument of a pipeline changes that no other test asks for, and what an optimizer function hands on."""

import numpy as np
import pytest

from tests.programs import pipelined

X = np.random.default_rng(3).normal(size=(16, 256)).astype(np.float32)


def trained(names, device=None, **arguments):
    """A pipeline of two stages that trains, as it ran."""
    tf = names.tf
    tf.reset_default_graph()
    tf.set_random_seed(1)

    def wide(x, name="w"):
        return tf.matmul(x, tf.get_variable(name, [256, 256]))

    stages = arguments.pop("computational_stages", [wide, lambda x: tf.reduce_mean(wide(x, "v") ** 2)])
    options = {"ipus": 2, "device": device, "optimizer": tf.train.MomentumOptimizer(0.1, 0.9)}
    dataset = tf.data.Dataset.from_tensors(X).repeat()
    return pipelined(names, stages, dataset, 4, **options | arguments)


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
    exact, rounded = (trained(names, gradient_accumulation_dtype=each, optimizer=optimizer) for each in (None, dtype))
    works = [each.job.program.stages[0].backward[-1].sram_bytes for each in (exact, rounded)]
    assert works == [256 * 256 * (4 + 2 * 4), 256 * 256 * (4 + 2 * 2)]
    np.testing.assert_allclose(rounded.variables["w"], exact.variables["w"], atol=1e-3)
    assert not np.array_equal(rounded.variables["w"], exact.variables["w"])


def test_results_are_summed_up_in_the_type_that_is_asked_for(names):
    plain = trained(names, outfeed_loss=True)
    for dtype in (None, np.float64):
        arguments = {"accumulate_outfeed": True, "accumulate_outfeed_dtype": dtype, "outfeed_loss": True}
        summed = trained(names, **arguments)
        assert summed.sent.dtype == (dtype or np.float32)
        np.testing.assert_allclose(summed.sent, [plain.sent.sum()], rtol=1e-6)
    last, before = (each.job.program.stages[-1] for each in (summed, plain))
    assert len(last.forward) == len(before.forward) + 1  # the sum on the IPU


def test_a_rate_from_the_infeed_is_that_of_the_last_micro_batch(names):
    """Plain gradients of one variable: the change by the rate of the fourth element, times the sum of gradients."""
    tf = names.tf
    rates = np.float32([1, 2, 3, 0.5] * 2)

    def last(x, rate):
        return rate, tf.get_variable("w", [], initializer=tf.ones_initializer()) * x

    def learn(rate, loss):
        return names.ipu.pipelining_ops.OptimizerFunctionOutput(tf.train.GradientDescentOptimizer(rate), loss)

    stages, dataset = [lambda rate: (tf.ones([]), rate), last], tf.data.Dataset.from_tensor_slices(rates)
    found = pipelined(names, stages, dataset, 4, ipus=2, repeat_count=2, optimizer_function=learn)
    np.testing.assert_array_equal(found.sent[0], rates)
    assert found.variables["w"] == 1 - 2 * 0.5 * 4


def test_stages_of_one_ipu_hold_a_variable_once(names):
    """What they learn is in tests/oracles/test_whole_updates.py."""
    tf = names.tf

    def shared(x):
        with tf.variable_scope("all", reuse=tf.AUTO_REUSE):
            return x * tf.get_variable("w", [1], initializer=tf.ones_initializer())

    stages = [shared, lambda x: x + 1, lambda x: tf.reduce_sum(shared(x))]
    dataset = tf.data.Dataset.from_tensors(np.float32([2.0])).repeat()
    optimizer = tf.train.GradientDescentOptimizer(0.01)
    found = pipelined(names, stages, dataset, 6, ipus=2, optimizer=optimizer, device_mapping=[0, 1, 0])
    assert [stage.parameter_bytes for stage in found.job.program.stages] == [4, 0, 0]


def learning(run, kind=None, **output):
    """An optimizer function of gradient descent."""
    kind = kind or run.names.tf.train.GradientDescentOptimizer
    return lambda loss: run.names.ipu.pipelining_ops.OptimizerFunctionOutput(kind(0.1), loss, **output)


def test_defaults(run):
    found = run(optimizer_function=learning(run)).job
    assert found.plan.schedule == "grouped"
    assert found.program.shape.mapping == (0, 1)
    assert found.program.reduction == "SUM"
    assert found.program.infeed.prefetch_depth == found.program.outfeed.buffer_depth == 3
    assert not found.program.shape.recompute
    assert found.program.name == "pipeline"
    assert found.system.count == 2


def test_arguments_of_the_optimizer_are_handed_on(run):
    seen = []

    class Asking(run.names.tf.train.GradientDescentOptimizer):
        def compute_gradients(self, loss, *args, **kwargs):
            seen.append((args, kwargs["gate_gradients"]))
            return super().compute_gradients(loss, *args, **kwargs)

        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            seen.append((global_step, name))
            return super().apply_gradients(grads_and_vars)

    output = {"compute_gradients_args": (None,), "compute_gradients_kwargs": {"gate_gradients": 1}}
    output |= {"apply_gradients_args": (5,), "apply_gradients_kwargs": {"name": "n"}}
    run(optimizer_function=learning(run, Asking, **output))
    assert seen == [((None,), 1), (5, "n")]


def test_inference_says_what_has_no_effect(run):
    assert run(offload_weight_update_variables=True).job.notes == (
        "offload_weight_update_variables will have no effect since this pipeline is in inference.",
    )


def test_gradients_go_back_to_variables_alone(run):
    """As TensorFlow takes gradients of the variables: labels on their way and stages before the first need none."""
    found = run(
        computational_stages=[
            lambda x: (x, x + 1),
            lambda x, y: (run.times_w(x), y),
            lambda x, y: run.names.tf.reduce_sum((x - y) ** 2),
        ],
        gradient_accumulation_count=12,
        optimizer_function=learning(run),
    )
    stages = found.job.program.stages
    assert [profile.gradient_bytes for profile in stages] == [0, 0, 8]
    assert [profile.output_bytes for profile in stages] == [16, 16, 0]
    assert [bool(profile.backward) for profile in stages] == [False, True, True]
    # The sum of 2 (w - 2) over two elements and 12 micro-batches, at w = 1.
    assert found.variables["w"] == pytest.approx(1 - 0.1 * 12 * 2 * 2 * (1 - 2))
