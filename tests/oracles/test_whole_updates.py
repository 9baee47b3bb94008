"""What an optimizer sees: a variable's whole gradient of a micro-batch, all variables at once; options of stages."""

from fractions import Fraction

import numpy as np
import pytest

from ipusim.base.errors import UnsupportedProgramError
from ipusim.ipu.runtime.pipeline_options import PipelineSchedule, PipelineStageOptions
from tests.programs import configure, pipelined

COUNT = 12
#: First values of the variables of the stages below.
HELD = np.array([[1.0, 2.0], [3.0, -1.0]])


def train(names, stages, optimizer, elements, replicas=None, **arguments):
    """Train with an optimizer; on two IPUs for each of so many replicas if that is given."""
    dataset = names.tf.data.Dataset.from_tensor_slices(elements)
    if replicas:
        remote = {"device_connection__enable_remote_buffers": True, "optimizations__minimum_remote_tensor_size": 1}
        arguments |= {"ipus": 2 * replicas, "device": remote}
    return pipelined(names, stages, dataset, COUNT, optimizer=optimizer, **arguments).variables


def weight(tf, value, name="w"):
    with tf.variable_scope("", reuse=tf.AUTO_REUSE):
        return tf.get_variable(name, dtype=tf.float64, initializer=np.array(value))


@pytest.mark.parametrize("schedule", [PipelineSchedule.Grouped, PipelineSchedule.Sequential])
@pytest.mark.parametrize(("method", "expected"), [("SUM", 2 - 12), ("MEAN", 2 - 1), ("RUNNING_MEAN", 2 - 1)])
def test_a_shared_variables_gradient_is_mapped_once_on_its_sum(names, schedule, method, expected):
    """The loss is x + 2w: of each micro-batch the gradient is 2, which is clipped to 1."""
    tf = names.tf
    add = lambda x: x + weight(tf, 2.0)  # noqa: E731
    plain = tf.train.GradientDescentOptimizer(1.0)
    found = train(
        names,
        [add, lambda x: 1.0 * x, add],
        names.ipu.optimizers.MapGradientOptimizer(plain, lambda gradient, _: tf.clip_by_value(gradient, -1.0, 1.0)),
        np.zeros(COUNT),
        device_mapping=[0, 1, 0],
        pipeline_schedule=schedule,
        reduction_method=method,
    )
    assert found["w"] == pytest.approx(expected, rel=1e-12)


def test_a_variable_of_three_stages_is_decayed_once(names):
    """The loss is 3w, and the decay adds w / 2: of each micro-batch 3 + 1."""
    tf = names.tf
    add = lambda x: x + weight(tf, 2.0)  # noqa: E731
    plain = tf.train.GradientDescentOptimizer(0.5)
    decaying = names.ipu.optimizers.MapGradientOptimizer(plain, lambda gradient, variable: gradient + 0.5 * variable)
    found = train(names, [add, add, add], decaying, np.zeros(COUNT), device_mapping=[0, 0, 0])
    assert found["w"] == 2 - 0.5 * COUNT * 4


@pytest.mark.parametrize("replicas", [2, 4])
def test_replicas_share_a_variable_of_several_stages(names, replicas):
    """Its one accumulator is summed up over the replicas once: d(w^3 x)/dw = 3 w^2 x = 12 x."""
    tf = names.tf
    times = lambda x: x * weight(tf, 2.0)  # noqa: E731
    optimizer = names.ipu.optimizers.CrossReplicaOptimizer(tf.train.GradientDescentOptimizer(0.0625))
    elements = np.arange(float(COUNT * replicas))
    configure(names, replicas)
    found = train(names, [times, times, times], optimizer, elements, device_mapping=[0, 0, 0])
    assert found["w"] == pytest.approx(2 - 0.0625 * 12 * elements.sum() / replicas, rel=1e-12)


def clip(gradients, norm=1.0):
    """Clip by the global norm, as tf.clip_by_global_norm does."""
    total = np.sqrt(sum(np.sum(gradient**2) for gradient in gradients))
    return [gradient * norm / max(total, norm) for gradient in gradients]


def clipping(names, around, halves=False):
    """An optimizer that clips by the norm of all gradients, and halves the variables after the update if asked."""
    tf = names.tf

    class Clipping(names.ipu.optimizers.IpuOptimizer):
        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            gradients, variables = zip(*grads_and_vars, strict=True)
            clipped, _ = tf.clip_by_global_norm(gradients, 1.0)
            done = super().apply_gradients(zip(clipped, variables, strict=True), global_step, name)
            if not halves:
                return done
            with tf.control_dependencies([done]):
                return tf.group([variable.assign(variable.read_value() / 2) for variable in variables])

    return Clipping(around)


def stages(tf):
    return [
        lambda x: x * weight(tf, HELD[0], "v"),
        lambda x: tf.reduce_sum(x * weight(tf, HELD[1], "w")),
    ]


def gradients(element, v, w):
    """The gradients of sum(x v w)."""
    return np.array([element * w, element * v])


def elements(count):
    return np.random.default_rng(5).normal(size=(count, 2))


SHARDED = {"offload_weight_update_variables": True, "replicated_optimizer_state_sharding": True}


@pytest.mark.parametrize("kind", ["inside", "around", "around and halved"])
@pytest.mark.parametrize(
    "more",
    [
        *({"pipeline_schedule": schedule} for schedule in PipelineSchedule),
        SHARDED,
        SHARDED | {"replicated_weight_sharding": True},
    ],
    ids=[*(schedule.name for schedule in PipelineSchedule), "state", "both"],
)
def test_each_replica_clips_before_the_average_or_the_mean_after_it(names, kind, more):
    tf, made = names.tf, elements(2 * 2 * COUNT)
    momentum, crossing = tf.train.MomentumOptimizer(0.125, 0.5), names.ipu.optimizers.CrossReplicaOptimizer
    optimizer = (
        crossing(clipping(names, momentum)) if kind == "inside" else clipping(names, crossing(momentum), "and" in kind)
    )
    found = train(names, stages(tf), optimizer, made, 2, repeat_count=2, **more)
    held, slots = HELD.copy(), np.zeros((2, 2))
    for execution in range(2):
        each = made[execution * 2 * COUNT : (execution + 1) * 2 * COUNT]
        totals = [sum(gradients(element, *held) for element in each[replica::2]) for replica in range(2)]
        if kind == "inside":
            step = np.array(clip(np.mean(totals, axis=0)))
        else:
            step = np.mean([clip(total) for total in totals], axis=0)
        slots = 0.5 * slots + step
        held = (held - 0.125 * slots) / (2 if "halved" in kind else 1)
    np.testing.assert_allclose([found["v"], found["w"]], held, rtol=1e-12)


SHARE = {"availableMemoryProportion": "0.001"}
OPTIONS = [PipelineStageOptions(matmul_options={**SHARE, "partialsType": "half"})] * 2
#: Share of the memory and bytes of a partial sum: as asked for, of the device alone, and by default.
ASKED, OF_DEVICE, DEFAULT = (Fraction(1, 1000), 2), (Fraction(1, 1000), 4), (None, 4)


def with_options(names, variables, **arguments):
    """Train a stage for each name of a variable, with the product of its input and the variable."""
    tf = names.tf

    def product(name):
        def stage(x):
            with tf.variable_scope("", reuse=tf.AUTO_REUSE):
                return tf.matmul(x, tf.get_variable(name, [16, 16]))

        return stage

    *stages, last = map(product, variables)
    stages.append(lambda x: tf.reduce_mean(last(x)))
    dataset = tf.data.Dataset.from_tensors(np.ones((4, 16), np.float32)).repeat()
    optimizer = names.ipu.optimizers.CrossReplicaOptimizer(tf.train.GradientDescentOptimizer(0.1))
    return pipelined(names, stages, dataset, 12, ipus=4, optimizer=optimizer, **arguments)


@pytest.mark.parametrize(
    ("arguments", "forward", "backward"),
    [
        ({"forward_propagation_stages_poplar_options": OPTIONS}, ASKED, DEFAULT),
        ({"backward_propagation_stages_poplar_options": OPTIONS}, DEFAULT, ASKED),
        ({"device": {"matmuls__poplar_options": SHARE}}, OF_DEVICE, OF_DEVICE),
    ],
    ids=["of forward passes", "of backward passes", "of the device"],
)
def test_options_of_products_reach_their_plans(names, arguments, forward, backward):
    for stage in with_options(names, "ab", **arguments).job.program.stages:
        for passes, planned in ((stage.forward, forward), (stage.backward, backward)):
            assert {(work.memory_proportion, work.partials_itemsize) for work in passes if work.products} == {planned}


def test_a_shared_variable_in_parts_is_refused(names):
    device = {"device_connection__enable_remote_buffers": True}
    with pytest.raises(UnsupportedProgramError, match=r"^replicated_weight_sharding: .* got 'a' in several"):
        with_options(names, "aab", device_mapping=[0, 0, 1], replicated_weight_sharding=True, device=device)
