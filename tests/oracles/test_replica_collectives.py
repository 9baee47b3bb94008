"""What replicas do together in the middle of a pass: in any schedule, in time, in loops, and where they go astray.

Results and gradients are in ``test_traced_collectives.py``.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from ipusim.base.errors import ModelError, ProgramError, UnsupportedProgramError
from ipusim.hardware.collectives.choose import ALGORITHMS
from ipusim.hardware.collectives.cost import concurrent_cost
from ipusim.pipeline.ops import Pass
from ipusim.pricing.terms import terms_of
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.timeline.kinds import SpanKind
from tests.effort import draws_everything, sampled
from tests.programs import configure, hosted_names, run, tensorflow
from tests.traced_training import Lazily, ipus, train

cross_replica_ops, all_to_all_op, optimizers = map(Lazily, ("cross_replica_ops", "all_to_all_op", "optimizers"))
custom_ops, pipelining_ops = Lazily("custom_ops"), Lazily("pipelining_ops")
reduce_scatter_op, replication_ops = Lazily("reduce_scatter_op"), Lazily("replication_ops")
X = np.random.default_rng(5).normal(size=(4, 6)).astype(np.float32)
START = np.linspace(0.2, 1.2, 6).astype(np.float32)
RATE = 0.01


def averaged(v1):
    return optimizers.CrossReplicaOptimizer(v1.train.GradientDescentOptimizer(RATE))


def variable(name, start=START):
    return tensorflow().compat.v1.get_variable(name, initializer=np.asarray(start, np.float32))


def gone_together(function, replicas=4, elements=X, device=None, **options):
    """An inference whose second stage has a collective, one element in each replica."""
    stages = [lambda x: x, lambda x: function(x[0])]
    options = {"repeat_count": 1, "gradient_accumulation_count": 2, **options}
    device = device or ipus(2 * replicas)
    return train(lambda _: stages, [elements[:replicas]], batch=1, rate=None, device=device, **options)


def learned(replicas=2, optimizer=None, device=None, **options):
    """A training whose last stage sums over replicas, and has a reduce-scatter that does not come out even."""
    tf = tensorflow()

    def last(z):
        return tf.reduce_sum(reduce_scatter_op.reduce_scatter(z[:5], replicas) ** 2)

    return train(
        lambda _: [lambda x: tf.tanh(x[0] + variable("v")), last],
        [X[:replicas]],
        batch=1,
        optimizer=optimizer or averaged,
        device=device or ipus(2 * replicas),
        **{"repeat_count": 1, **options},
    )


@pytest.mark.parametrize("sync", ["lock_step", "point_to_point"])
def test_any_schedule_learns_the_same_also_by_halves_and_in_either_sync_mode(sync):
    """The Timeline shows what is priced: as often as the pass runs, in every replica."""
    done = learned()
    request = done.job.request
    functions = replace(request.functions, elements=lambda index: (X[index % 2, None],))
    for schedule in ("grouped", "interleaved", "sequential", "gpipe", "1f1b", "zero_bubble_h1"):
        asked = request.replace({"pipeline.schedule": schedule, "pipeline.sync": sync})
        job = assemble(replace(asked, functions=functions))
        ran = execute(job)
        np.testing.assert_allclose(ran.learning.weights["v"], done.variables["v"], rtol=1e-6)
        backward = Pass.INPUT_GRADIENT if schedule == "zero_bubble_h1" else Pass.BACKWARD
        calls = [each for kind in (Pass.FORWARD, backward) for each in job.costs.collectives[kind, 1]]
        took = ran.timeline.end - ran.timeline.start
        rows = ran.timeline.rows(SpanKind.COLLECTIVE)
        assert took[rows].sum() == 2 * 4 * sum(each.cost.total_cycles for each in calls)
        assert set(ran.timeline.ipu[rows].tolist()) == {1, 3}


@pytest.mark.parametrize("mode", ["RecomputeThenBackpropagate", "RecomputeAndBackpropagateInterleaved"])
def test_a_stage_that_is_computed_again_meets_again(mode):
    tf = tensorflow()
    schedule = pipelining_ops.PipelineSchedule
    options = {"pipeline_schedule": schedule.Sequential if "Inter" in mode else schedule.Grouped}

    def trained(recompute):
        device = ipus(4, allow_recompute=recompute)
        if recompute:
            options["recomputation_mode"] = getattr(pipelining_ops.RecomputationMode, mode)
        stages = [
            lambda x: cross_replica_ops.cross_replica_sum(x[0] * variable("v")),
            lambda z: tf.reduce_sum(z**2),
        ]
        return train(
            lambda _: stages,
            [X[:2]],
            batch=1,
            device=device,
            repeat_count=1,
            optimizer=averaged,
            **options,
        )

    plain, again = trained(False), trained(True)
    np.testing.assert_array_equal(plain.variables["v"], again.variables["v"])
    counts = [len(each.timeline.rows(SpanKind.COLLECTIVE)) for each in (plain, again)]
    assert counts == [2 * 4 * 2, 2 * 4 * 3]


@sampled(2)
@pytest.mark.parametrize(("replicas", "group"), [(2, None), (4, 2), (4, None), (16, 4), (16, None), (64, None)])
def test_the_time_is_that_of_the_fastest_algorithm_over_the_links_of_the_stage(replicas, group):
    """All groups at once, one whole buffer for each, over GW-Links where 128 IPUs are two pods."""
    totals = {}
    for elements in (4, 4096, 65536) if replicas < 64 or draws_everything() else (4, 4096):
        done = gone_together(
            lambda x: cross_replica_ops.cross_replica_sum(x, group), replicas, np.ones((replicas, elements), np.float32)
        )
        system = done.job.system
        members = [2 * replica + 1 for replica in range(replicas)]
        size = group or replicas
        groups = [members[first : first + size] for first in range(0, replicas, size)]
        choices = [
            concurrent_cost(system, [algorithm(system, each, elements, 4) for each in groups])
            for name, algorithm in ALGORITHMS["all_reduce"].items()
            if {"ladder": size % 2 == 0, "across pods": replicas == 64}.get(name, True)
        ]
        rows = done.timeline.rows(SpanKind.COLLECTIVE)
        totals[elements] = min(each.total_cycles for each in choices)
        assert (done.timeline.end - done.timeline.start)[rows].tolist() == [totals[elements]] * 2 * replicas
        assert set(done.timeline.bytes[rows].tolist()) == {4 * elements}
    assert [*totals.values()] == sorted({*totals.values()})
    assert (done.job.costs.collectives[0, 1][0].algorithm == "across pods") == (replicas == 64)


def test_what_it_costs_is_said_with_its_formula():
    def stage(x):
        total = cross_replica_ops.cross_replica_sum
        return total(total(x)) + reduce_scatter_op.reduce_scatter(x, 2)[0]

    job = gone_together(stage).job
    found = [each for each in terms_of(job.costs, job.plan, job.program, job.system) if "stage_1" in each.label]
    called = [each for each in found if "in forward" in each.label]
    names = [each.partition(" (")[0] for each in dict.fromkeys(each.label for each in called)]
    assert sorted(names) == ["all-reduce", "all-reduce", "reduce-scatter"]
    for each in called:
        assert eval(each.formula(), {"ceil": math.ceil, "max": max}) == each.cycles
    assert sum(each.cycles for each in called) == sum(each.cost.total_cycles for each in job.costs.collectives[0, 1])


def test_with_one_replica_nothing_is_done_together():
    done = gone_together(lambda x: cross_replica_ops.cross_replica_sum(all_to_all_op.all_gather(x, 1)[0]), 1)
    plain = gone_together(lambda x: x, 1)
    np.testing.assert_array_equal(done.losses, plain.losses)
    np.testing.assert_array_equal(done.timeline.end, plain.timeline.end)
    assert not done.job.costs.collectives


def trained_by(hand, forgotten=()):
    """Two stages whose gradients stages average by hand, or the optimizer does."""
    tf = tensorflow()

    def weights(name, start):
        found = variable(name, start)
        return cross_replica_ops.cross_replica_sum(found) / 4 if hand and name not in forgotten else found

    def last(h):
        return tf.reduce_mean((tf.linalg.matvec(h, weights("v", np.linspace(1, 2, 4))) - 1) ** 2)

    def chosen(v1):
        momentum = v1.train.MomentumOptimizer(0.01, 0.9)
        return momentum if hand else optimizers.CrossReplicaOptimizer(momentum)

    def first(x):
        return tf.tanh(tf.matmul(x, weights("w", np.linspace(-1, 1, 24).reshape(6, 4))))

    rows = np.random.default_rng(1).normal(size=(96, 6)).astype(np.float32)
    return train(lambda _: [first, last], [rows], batch=2, device=ipus(8), optimizer=chosen, repeat_count=3)


def test_gradients_that_are_summed_by_hand_train_as_the_cross_replica_optimizer_does():
    by_hand, by_optimizer = trained_by(True), trained_by(False)
    np.testing.assert_allclose(by_hand.losses, by_optimizer.losses, rtol=1e-5)
    for name, value in by_optimizer.variables.items():
        np.testing.assert_allclose(by_hand.variables[name], value, rtol=1e-4, atol=1e-6)
    counts = [
        len(each.timeline.rows(kind))
        for each in (by_hand, by_optimizer)
        for kind in (SpanKind.ALL_REDUCE, SpanKind.COLLECTIVE)
    ]
    assert counts[0] == counts[3] == 0
    assert counts[1:3] == [4 * 2 * 2 * 12, 3]


def test_replicas_that_learn_other_weights_are_refused():
    with pytest.raises(
        UnsupportedProgramError, match=r"^replicas with separate .* 'v' of replica 1 differs from the variable"
    ):
        trained_by(True, forgotten=("v",))
    with pytest.raises(UnsupportedProgramError, match=r"^optimizer_function: replicas that learn by themselves are"):
        trained_by(True, forgotten=("v", "w"))


def where(x, then, otherwise):
    """A branch by a condition on the element or on the replica."""
    return tensorflow().cond(x, then, otherwise)


ASTRAY = {
    "another operation": (
        lambda x: where(
            replication_ops.replication_index() < 2,
            lambda: cross_replica_ops.cross_replica_sum(x),
            lambda: all_to_all_op.all_gather(x, 4)[0],
        ),
        r"replica 2 calls all_gather of float32\[6\] in groups of 4 where replica 0 calls all_reduce of float32\[6\]: "
        "all replicas call the same collectives in the same order",
    ),
    "none": (
        lambda x: where(
            tensorflow().equal(replication_ops.replication_index(), 1),
            lambda: x,
            lambda: cross_replica_ops.cross_replica_sum(x),
        ),
        r"replica 1 calls no further collective where replica 0 calls all_reduce of float32\[6\]",
    ),
    "only in a run": (
        lambda x: where(tensorflow().equal(x[0], 0.0), lambda: x, lambda: cross_replica_ops.cross_replica_sum(x)),
        r"the stage calls all_reduce of float32\[6\], but called no collective in its trial",
    ),
    "less in a run": (
        lambda x: where(tensorflow().equal(x[0], 0.0), lambda: cross_replica_ops.cross_replica_sum(x), lambda: x),
        r"the stage calls no further collective, but called all_reduce of float32\[6\] in its trial",
    ),
}


@pytest.mark.parametrize("name", ASTRAY)
def test_replicas_that_go_astray_are_told_and_never_wait_for_ever(name):
    function, text = ASTRAY[name]
    with pytest.raises(ModelError, match=rf"^F1.\d of stage .*{text}"):
        gone_together(function)


def test_a_replica_that_fails_is_told(tmp_path):
    path = tmp_path / "users.py"
    path.write_text("def Fails(x, index, attributes):\n    assert index != 1, 'out of luck'\n    return x\n")
    outs = {"output_types": [np.float32], "output_shapes": [(6,)]}

    def stage(x):
        inputs = [cross_replica_ops.cross_replica_sum(x), replication_ops.replication_index()]
        (found,) = custom_ops.precompiled_user_op(inputs, str(path), outs=outs, op_name="Fails")
        return cross_replica_ops.cross_replica_sum(found)

    with pytest.raises(ModelError, match=r"^F1.0 of stage .* failed in execution 0: .*out of luck"):
        gone_together(stage)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: cross_replica_ops.cross_replica_sum(x, 3), "^replica_group_size: expected a divisor of the number"),
        (
            lambda x: all_to_all_op.all_gather(x, 8),
            "^replication_factor: expected a divisor of .* replicas, 4, got 8 in stage",
        ),
        (lambda x: reduce_scatter_op.reduce_scatter(x, 3), "^replication_factor: .*, got 3 in stage"),
        (
            lambda x: all_to_all_op.all_to_all(x, 0, 0, 2),
            "^replication_factor: expected the number of replicas of the device, 4, got 2",
        ),
    ],
)
def test_groups_that_the_device_has_not_are_refused(function, text):
    with pytest.raises(ProgramError, match=text):
        gone_together(function)


def looped(body, replicas, shards=1, count=2):
    """A loop whose body sends what it returns; takes the modules and an element."""
    with hosted_names() as names:
        tf, ipu = names.tf, names.ipu
        configure(names, replicas * shards)
        rows = np.stack([np.full(2, 1.0 + replica, np.float32) for replica in range(replicas)])
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(rows).repeat())
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def enqueued(x):
            returned = body(names, x)
            result, *others = returned if isinstance(returned, tuple) else (returned,)
            return [outfeed.enqueue(result), *others]

        return run(names, lambda: ipu.loops.repeat(count, enqueued, infeed_queue=infeed), outfeed, [infeed])


def test_the_body_of_a_loop_calls_collectives():
    def sharded(names, x):
        with names.ipu.scopes.ipu_shard(0):
            y = cross_replica_ops.cross_replica_sum(x)
        with names.ipu.scopes.ipu_shard(1):
            return all_to_all_op.all_gather(y * x, 2)

    np.testing.assert_array_equal(looped(sharded, 2, 2).sent, [[[[3, 3], [6, 6]]] * 2] * 2)


@pytest.mark.parametrize("replicas", [2, 4])
def test_a_loop_averages_gradients_that_it_clips(replicas):
    """By the gradients of each replica, which NumPy clips after they are averaged, or before."""

    def body(names, x, averaged_first):
        tf = names.tf
        loss = tf.reduce_sum(tf.square(x * tf.get_variable("w", initializer=np.ones(2, np.float32))))
        plain = tf.train.GradientDescentOptimizer(0.1)

        class Clipping(tf.train.GradientDescentOptimizer):
            def apply_gradients(self, pairs, *args, **kwargs):
                return super().apply_gradients([(tf.clip_by_norm(g, 3.0), v) for g, v in pairs], *args, **kwargs)

        if averaged_first:
            return loss, names.ipu.optimizers.CrossReplicaOptimizer(Clipping(0.1)).minimize(loss)
        optimizer = names.ipu.optimizers.CrossReplicaOptimizer(plain)
        pairs = [(tf.clip_by_norm(g, 3.0), v) for g, v in optimizer.compute_gradients(loss)]
        return loss, optimizer.apply_gradients(pairs)

    def clipped(gradient):
        return gradient * min(1.0, 3.0 / np.linalg.norm(gradient))

    for averaged_first in (True, False):
        w = np.ones(2)
        for _ in range(3):
            each = [2 * w * (1.0 + replica) ** 2 for replica in range(replicas)]
            w = w - 0.1 * (clipped(np.mean(each, 0)) if averaged_first else np.mean([*map(clipped, each)], 0))
        ran = looped(lambda names, x, first=averaged_first: body(names, x, first), replicas, count=3)
        np.testing.assert_allclose(ran.variables["w"], w, rtol=1e-5)
        assert len(ran.timeline.rows(SpanKind.ALL_REDUCE)) == 3
    assert assemble(ran.job.request.replace({"system.host.count": 2})).system.hosts == 2
