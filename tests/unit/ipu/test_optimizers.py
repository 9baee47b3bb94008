"""Optimizers around TensorFlow's: what a subclass of one's own sees, what it may change, and what wraps what.

Also those of Graphcore's addons: Keras' rules with dtypes of their own for the state.
"""

import re

import numpy as np
import pytest

from ipusim.base.errors import ProgramError
from tests.programs import pipelined, tensorflow

COUNT, LIMIT = 8, 0.5
START = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
GRADIENTS = [np.cos(np.arange(6, dtype=np.float32) + step).reshape(2, 3) for step in range(4)]


def training(names, make, ipus=2, **output):
    """Two variables in two stages, trained for one execution."""
    tf = names.tf
    tf.reset_default_graph()

    def first(x):
        return x * tf.get_variable("w0", initializer=np.float32([1, 2]))

    def second(x):
        return tf.reduce_sum((x * tf.get_variable("w1", initializer=np.float32([0.5, -0.25])) - 1) ** 2)

    def learn(loss):
        return names.ipu.pipelining_ops.OptimizerFunctionOutput(make(), loss, **output)

    dataset = tf.data.Dataset.from_tensors(np.ones(2, np.float32)).repeat()
    return pipelined(names, [first, second], dataset, COUNT, ipus=ipus, optimizer_function=learn)


def gradients():
    """A micro-batch's gradients by hand, at x of ones."""
    w0, w1 = np.array([1.0, 2.0]), np.array([0.5, -0.25])
    error = 2 * (w0 * w1 - 1)
    return {"w0": (w0, error * w1), "w1": (w1, error * w0)}


def stepped(change=lambda gradient: gradient, rate=0.01):
    return {name: w - rate * COUNT * change(gradient) for name, (w, gradient) in gradients().items()}


def equal(found, expected):
    for name, array in expected.items():
        np.testing.assert_allclose(found.variables[name], array, rtol=1e-5, err_msg=name)


def test_compute_gradients_of_ones_own_changes_the_gradients_of_each_micro_batch(names):
    tf, optimizers = names.tf, names.ipu.optimizers

    class Clipping(optimizers.IpuOptimizer):
        def compute_gradients(self, loss, var_list=None, **kwargs):
            pairs = super().compute_gradients(loss, var_list, **kwargs)
            return [(tf.clip_by_value(gradient, -LIMIT, LIMIT), variable) for gradient, variable in pairs]

    def clipping():
        return Clipping(tf.train.GradientDescentOptimizer(0.01))

    def clip(gradient):
        return np.clip(gradient, -LIMIT, LIMIT)

    equal(training(names, clipping), stepped(clip))
    around = training(names, lambda: optimizers.MapGradientOptimizer(clipping(), lambda g, w: 2 * g + 0 * w))
    equal(around, stepped(lambda gradient: 2 * clip(gradient)))


def test_variables_that_are_left_out_stay(names):
    tf, optimizers = names.tf, names.ipu.optimizers
    kept = {"w0": stepped()["w0"], "w1": gradients()["w1"][0]}

    class First(optimizers.IpuOptimizer):
        def compute_gradients(self, loss, var_list=None, **kwargs):
            chosen = [each for each in tf.trainable_variables() if each.op.name == "w0"]
            return super().compute_gradients(loss, chosen, **kwargs)

    class Leaving(optimizers.IpuOptimizer):
        def compute_gradients(self, loss, var_list=None, **kwargs):
            pairs = super().compute_gradients(loss, var_list, **kwargs)
            return [(None if variable.op.name == "w1" else gradient, variable) for gradient, variable in pairs]

    for kind in (First, Leaving):
        equal(training(names, lambda kind=kind: kind(tf.train.GradientDescentOptimizer(0.01))), kept)
    with pytest.raises(ProgramError, match=r"No variables to optimize\.$"):
        training(names, tf.train.AdamOptimizer, compute_gradients_kwargs={"var_list": []})


def test_optimizers_of_keras_step_as_tensorflows_do(names):
    equal(training(names, lambda: names.keras.optimizers.SGD(0.01)), stepped())


def test_slots_are_those_of_the_wrapped_optimizer(names):
    tf, optimizers = names.tf, names.ipu.optimizers
    made = []

    def make():
        made.append(optimizers.IpuOptimizer(optimizers.CrossReplicaOptimizer(tf.train.MomentumOptimizer(0.01, 0.5))))
        return made[0]

    found = training(names, make)
    (wrapped,) = made
    assert wrapped.get_slot_names() == ["momentum"]
    assert [each.op.name for each in wrapped.variables()] == ["w0/Momentum", "w1/Momentum"]
    for name, (_, gradient) in gradients().items():
        np.testing.assert_allclose(found.variables[f"{name}/Momentum"], COUNT * gradient, rtol=1e-5)


@pytest.mark.parametrize("kind", ["", "V2", "CrossReplica", "CrossReplicaV2"])
def test_a_pipeline_takes_no_accumulation_optimizer(names, kind):
    name = f"{kind.removesuffix('V2')}GradientAccumulationOptimizer{'V2' if kind.endswith('V2') else ''}"
    text = (
        "optimizer_function: expected no gradient accumulation optimizer in combination with pipelining, because a "
        f"pipeline always accumulates gradients: give it gradient_accumulation_count, got {name}"
    )
    wrapper = getattr(names.ipu.optimizers, name)
    with pytest.raises(ProgramError, match=re.escape(text)):
        training(names, lambda: wrapper(names.tf.train.GradientDescentOptimizer(0.1), 4))


def test_tensors_of_the_host_have_gradients_and_updates_in_a_session(names):
    """The example of Graphcore's documentation, outside of any program."""
    tf = names.tf
    one, two, three = every = [tf.Variable([number], name=f"v{number:.0f}") for number in (1.0, 2.0, 3.0)]
    optimizer = names.ipu.optimizers.MapGradientOptimizer(
        tf.train.GradientDescentOptimizer(0.1), lambda grad, var: grad + 0.01 * var
    )
    pairs = optimizer.compute_gradients(one * two + one * three + two * three, every)
    update = optimizer.apply_gradients(pairs)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        gradients = session.run([gradient for gradient, _ in pairs])
        session.run(update)
        changed = session.run(every)
    np.testing.assert_allclose(np.ravel(gradients), [5.01, 4.02, 3.03], rtol=1e-6)
    np.testing.assert_allclose(np.ravel(changed), [1 - 0.501, 2 - 0.402, 3 - 0.303], rtol=1e-6)


@pytest.fixture
def addons():
    tensorflow()
    from ipusim.ipu.keras import optimizers  # noqa: PLC0415

    return optimizers


def updated(optimizer):
    tf = tensorflow()
    variable = tf.Variable(START, name="kernel")
    for gradient in GRADIENTS:
        optimizer.apply_gradients([(tf.constant(gradient), variable)])
    return variable.numpy()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Adam", {"epsilon": 1e-12}),
        ("SGD", {}),
        ("SGD", {"momentum": 0.9}),
        ("SGD", {"momentum": 0.9, "nesterov": True}),
    ],
)
def test_a_rule_is_that_of_keras(addons, name, options):
    own = getattr(addons, f"{name}IpuOptimizer")(0.1, **options)
    other = getattr(tensorflow().keras.optimizers.legacy, name)(0.1, **options)
    np.testing.assert_allclose(updated(own), updated(other), rtol=1e-5, atol=1e-6)


def lamb(decay, patterns=(), clip=np.inf):
    """LAMB by its formula, without a correction at the start."""
    value, m, v = START.astype(float), 0.0, 0.0
    for gradient in GRADIENTS:
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        direction = m / (np.sqrt(v) + 1e-6) + decay * value * ("decay" not in patterns)
        ratio = min(np.linalg.norm(value), clip) / np.linalg.norm(direction)
        value = value - 0.1 * direction * (1 if "norms" in patterns else ratio)
    return value


def test_lamb_is_its_formula(addons):
    kind = addons.LAMBIpuOptimizer
    plain = kind(0.1, weight_decay_rate=0.01, debiasing=False)
    np.testing.assert_allclose(updated(plain), lamb(0.01), rtol=1e-4)
    clipped = kind(0.1, debiasing=False, weight_norm_clip=0.5)
    np.testing.assert_allclose(updated(clipped), lamb(0, clip=0.5), rtol=1e-4)
    patterns = {"exclude_from_weight_decay": ["kern"], "exclude_from_layer_adaptation": ["nel:"]}
    excluding = kind(0.1, weight_decay_rate=0.5, debiasing=False, **patterns)
    np.testing.assert_allclose(updated(excluding), lamb(0.5, ("decay", "norms")), rtol=1e-4)
    assert kind.from_config(excluding.get_config()).get_config() == excluding.get_config()


def test_a_state_has_its_own_dtype(addons):
    adam = addons.AdamIpuOptimizer(0.1, m_dtype="float16", amsgrad=True, vhat_dtype="float16")
    near = updated(addons.AdamIpuOptimizer(0.1, amsgrad=True))
    np.testing.assert_allclose(updated(adam), near, atol=2e-2)
    assert [weight.dtype.name for weight in adam.weights[1:]] == ["float16", "float32", "float16"]
    assert addons.AdamIpuOptimizer.from_config(adam.get_config()).m_dtype == "float16"
