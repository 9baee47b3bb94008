"""What stages take and return: values of a whole run, rates of learning, and dictionaries.

Also what an argument of a pipeline changes that no other test asks for, and what an optimizer function hands on.
"""

import numpy as np
import pytest

from ipusim.timeline.kinds import SpanKind
from tests.programs import pipelined

X = np.arange(1, 5, dtype=np.float32)
WIDE = np.random.default_rng(3).normal(size=(16, 256)).astype(np.float32)
COUNT = 12
RATES = (0.001, 0.004, 0.0, 0.002)


def pipeline(names, stages, ipus=4, learn=None, **arguments):
    """A pipeline on the elements X, as it ran."""
    dataset = names.tf.data.Dataset.from_tensors(X).repeat()
    return pipelined(names, stages, dataset, COUNT, ipus=ipus, optimizer_function=learn, **arguments)


def fitted(names, threaded, make=None, **arguments):
    """Fit w x to 3 x over three stages, with a step size that goes through all of them, or that is written down."""
    tf, output = names.tf, names.ipu.pipelining_ops.OptimizerFunctionOutput
    names.tf.reset_default_graph()
    rate = tf.placeholder(tf.float32, [])

    def scale(*values):
        *rates, x = values
        return *rates, x * tf.get_variable("w", [], initializer=tf.ones_initializer()), x

    def loss(*values):
        *rates, y, x = values
        return *rates, tf.reduce_mean((y - 3 * x) ** 2)

    def learn(*values):
        *rates, value = values
        opt = (make or tf.train.GradientDescentOptimizer)(*rates or [RATES[0]])
        return output(opt, value)

    feeds = [{rate: each} for each in RATES] if threaded else [{}]
    inputs = [rate] if threaded else []
    stages = [scale, lambda *values: values, loss]
    return pipeline(names, stages, learn=learn, feeds=feeds, inputs=inputs, **arguments)


def weight(rates, limit=np.inf, momentum=0.0, replicas=1):
    """The weight that those rates lead to, by hand."""
    w = slot = 0.0
    w += 1
    for rate in rates:
        gradient = COUNT * np.clip(2 * (w - 3) * np.mean(X**2), -limit, limit)
        slot = momentum * slot + gradient
        w -= rate * slot
    return w


@pytest.mark.parametrize("schedule", ["Grouped", "Interleaved", "Sequential"])
def test_each_run_learns_at_the_rate_that_it_is_given(names, schedule):
    found = fitted(names, True, pipeline_schedule=names.ipu.pipelining_ops.PipelineSchedule[schedule])
    assert found.variables["w"] == pytest.approx(weight(RATES), rel=1e-5)
    for rate, (rates, losses) in zip(RATES, found.sent, strict=True):
        assert set(rates.tolist()) == {np.float32(rate)}
        assert losses.shape == (COUNT,)


def test_wrapped_optimizers_of_replicas_learn_at_the_rate_of_each_run(names):
    """Of two replicas with the same elements the mean is that of one."""
    tf, optimizers = names.tf, names.ipu.optimizers

    def make(rate):
        inner = tf.train.MomentumOptimizer(rate, 0.5)
        clipped = optimizers.MapGradientOptimizer(inner, lambda gradient, _: tf.clip_by_value(gradient, -20.0, 20.0))
        return optimizers.CrossReplicaOptimizer(clipped)

    found = fitted(names, True, make, ipus=8)
    assert found.job.system.replicas == 2
    assert found.variables["w"] == pytest.approx(weight(RATES, limit=20, momentum=0.5), rel=1e-5)


def test_a_mapping_sees_the_rate_of_each_run(names):
    def make(rate):
        return names.ipu.optimizers.MapGradientOptimizer(
            names.tf.train.GradientDescentOptimizer(1.0), lambda gradient, _: gradient * rate
        )

    assert fitted(names, True, make).variables["w"] == pytest.approx(weight(RATES), rel=1e-5)


def test_an_input_that_is_handed_on_as_it_came_travels_over_no_link(names):
    threaded, written = fitted(names, True), fitted(names, False)
    for name in ("stage", "ipu", "micro_batch", "link", "bytes"):
        ours, theirs = (getattr(each.timeline, name) for each in (threaded, written))
        assert ours.size == theirs.size
        if name == "bytes":
            extra = ours - theirs
            assert np.unique(extra[threaded.timeline.rows(SpanKind.OUTFEED)]).tolist() == [4]
            assert not extra[threaded.timeline.rows(SpanKind.EXCHANGE, SpanKind.LINK)].any()
        else:
            np.testing.assert_array_equal(ours, theirs, err_msg=name)


def test_an_input_that_a_stage_computes_with_travels(names):
    three = names.tf.constant(np.float32(3))
    found = pipeline(names, [lambda a, x: (2 * a, x), lambda a, x: a * x], inputs=[three], ipus=2)
    assert found.sent[0].tolist() == [(6 * X).tolist()] * COUNT
    assert found.job.program.stages[0].output_bytes == 4 + X.nbytes


def test_a_value_that_a_stage_takes_from_two_before_it_goes_through_the_one_between(names):
    kept = []

    def first(x):
        kept.append(2 * x)
        return x

    found = pipeline(names, [first, lambda x: x + 1, lambda x: x * kept[0]])
    assert found.sent[0].tolist() == [((X + 1) * 2 * X).tolist()] * COUNT
    assert [stage.output_bytes for stage in found.job.program.stages[:2]] == [2 * X.nbytes] * 2


def test_dictionaries_go_between_stages_to_the_optimizer_function_and_out_and_gradients_come_back(names):
    tf, ops = names.tf, names.ipu.pipelining_ops

    def scaled(x):
        return {"y": x * tf.get_variable("w", [], initializer=tf.ones_initializer()), "x": x}

    def error(both):
        return {"loss": tf.reduce_mean((both["y"] - 3 * both["x"]) ** 2), "x": both["x"]}

    def learn(outputs):
        return ops.OptimizerFunctionOutput(tf.train.GradientDescentOptimizer(RATES[0]), outputs["loss"])

    found = pipeline(names, [scaled, error], ipus=2, learn=learn)
    assert found.variables["w"] == pytest.approx(weight(RATES[:1]), rel=1e-5)
    (element,) = found.sent
    assert element["loss"].shape == (COUNT,)
    assert element["x"].shape == (COUNT, 4)
    tf.reset_default_graph()
    inferred = pipeline(names, [lambda x: {"x": x, "a": 2 * x}, lambda both: {"y": both["x"] - both["a"]}], ipus=2)
    assert inferred.sent["y"][0].tolist() == (-X).tolist()


def trained(names, device=None, **arguments):
    """A pipeline of two stages that trains, as it ran."""
    tf = names.tf
    tf.reset_default_graph()
    tf.set_random_seed(1)

    def wide(x, name="w"):
        return tf.matmul(x, tf.get_variable(name, [256, 256]))

    stages = arguments.pop("computational_stages", [wide, lambda x: tf.reduce_mean(wide(x, "v") ** 2)])
    options = {"ipus": 2, "device": device, "optimizer": tf.train.MomentumOptimizer(0.1, 0.9)}
    dataset = tf.data.Dataset.from_tensors(WIDE).repeat()
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
