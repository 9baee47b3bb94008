"""What stages take and return: values of a whole run, rates of learning, and dictionaries."""

import numpy as np
import pytest

from ipusim.timeline.kinds import SpanKind
from tests.programs import pipelined

X = np.arange(1, 5, dtype=np.float32)
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
