"""What replicas do together in the middle of a stage: results and gradients against one process that has them all."""

from __future__ import annotations

import contextvars
import math
from functools import partial

import autograd
import autograd.numpy as anp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipusim.base.errors import ModelError, ProgramError, ProgramTypeError, UnsupportedProgramError
from ipusim.hardware.collectives.choose import ALGORITHMS
from ipusim.hardware.collectives.cost import concurrent_cost
from ipusim.ipu import get_variable, loops, ops, scopes
from ipusim.ipu import tensorflow as tf
from ipusim.ipu.config import IPUConfig
from ipusim.ipu.ipu_infeed_queue import IPUInfeedQueue, repeat
from ipusim.ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipusim.ipu.optimizers import CrossReplicaOptimizer, GradientDescentOptimizer, MomentumOptimizer
from ipusim.ipu.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, RecomputationMode, pipeline
from ipusim.pipeline.ops import Pass
from ipusim.pricing.terms import terms_of
from ipusim.runs.assemble.assemble import assemble
from ipusim.runs.execute import execute
from ipusim.timeline.kinds import SpanKind
from tests.effort import runs_slowest, sampled, share, slowest

cross_replica_sum = ops.cross_replica_ops.cross_replica_sum
assume_equal_across_replicas = ops.cross_replica_ops.assume_equal_across_replicas
all_gather, all_to_all = ops.all_to_all_op.all_gather, ops.all_to_all_op.all_to_all
reduce_scatter = ops.reduce_scatter_op.reduce_scatter
replication_index = ops.replication_ops.replication_index

#: The replicas of a device, and how many of them do something together.
GROUPS = [(1, 1), (2, 2), (2, 1), (4, 4), (4, 2), (8, 4)]
OPERATIONS = {
    "ADD": np.sum,
    "MUL": np.prod,
    "MIN": np.min,
    "MAX": np.max,
    "SQUARE_ADD": lambda x, axis: np.sum(x**2, axis=axis),
}


def device(replicas, shards=2):
    config = IPUConfig()
    config.auto_select_ipus = replicas * shards
    return config


def inferred(stages, elements, replicas, **options):
    """Run stages on one element for each replica, shape (replicas, ...); return the program and its results."""
    outfeed = IPUOutfeedQueue()
    feed = IPUInfeedQueue([*elements] * 2)
    options = {"gradient_accumulation_count": 2, "config": device(replicas), **options}
    program = pipeline(stages, infeed_queue=feed, outfeed_queue=outfeed, **options)
    found = outfeed.dequeue()
    first = [np.asarray(each)[0] for each in (found if isinstance(found, list) else [found])]
    return program, [each if replicas > 1 else each[None] for each in first]


def together(function, elements, replicas):
    """Return what ``function`` gives in each replica, on its element."""
    return inferred([lambda x: x, function], elements, replicas)[1][0]


def by_group(elements, group):
    """Return arrays of all replicas by group and place in it."""
    return elements.reshape(-1, group, *elements.shape[1:])


def drawn(shape, seed, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return rng.integers(-4, 5, shape).astype(dtype) if np.dtype(dtype).kind == "i" else rng.normal(size=shape)


shapes = st.lists(st.integers(1, 4), max_size=3).map(tuple)


@settings(max_examples=share(12), deadline=None)
@given(st.sampled_from(GROUPS), shapes, st.integers(0, 99), st.sampled_from([np.float64, np.int32]))
def test_sums_and_gathers_are_those_of_numpy(devices, shape, seed, dtype):
    (replicas, group), x = devices, drawn((devices[0], *shape), seed, dtype)
    every = by_group(x, group)
    size = None if group == replicas else group
    found = together(lambda x: cross_replica_sum(x, size), x, replicas)
    np.testing.assert_allclose(found, np.repeat(every.sum(axis=1), group, axis=0).reshape(x.shape), rtol=1e-12)
    assert found.dtype == dtype
    found = together(lambda x: all_gather(x, group), x, replicas)
    np.testing.assert_array_equal(found, np.repeat(every, group, axis=0))


@settings(max_examples=share(10), deadline=None)
@given(st.sampled_from(GROUPS), st.integers(1, 9), st.integers(0, 99), st.sampled_from(sorted(OPERATIONS)))
def test_a_reduce_scatter_gives_each_replica_its_part_and_zeros_behind_the_end(devices, length, seed, operation):
    (replicas, group), x = devices, drawn((devices[0], length), seed)
    found = together(lambda x: reduce_scatter(x, group, f"COLLECTIVE_OP_{operation}"), x, replicas)
    part = -(-length // group)
    whole = OPERATIONS[operation](by_group(x, group), axis=1)
    padded = np.pad(whole, [(0, 0), (0, part * group - length)])
    np.testing.assert_allclose(found, padded.reshape(replicas, part), rtol=1e-12)
    found = together(lambda x: reduce_scatter(x, group, "COLLECTIVE_OP_LOCAL"), x, replicas)
    own = np.pad(x, [(0, 0), (0, part * group - length)]).reshape(replicas, group, part)
    np.testing.assert_array_equal(found, own[np.arange(replicas), np.arange(replicas) % group])


@pytest.mark.parametrize(("operation", "of_all"), [("AND", np.all), ("OR", np.any)])
@pytest.mark.parametrize("group", [1, 2, 4])
def test_logical_operations_give_1_and_0_of_whole_numbers(operation, of_all, group):
    x = np.array([[0, 1, 2], [0, 5, 0], [3, 3, 3], [0, 0, -7]], np.int32)
    found = together(lambda x: reduce_scatter(x, group, f"COLLECTIVE_OP_LOGICAL_{operation}"), x, 4)
    whole = of_all(by_group(x, group), axis=1)
    part = -(-3 // group)
    np.testing.assert_array_equal(found, np.pad(whole, [(0, 0), (0, part * group - 3)]).reshape(4, part))
    assert found.dtype == np.int32


@settings(max_examples=share(10), deadline=None)
@given(st.sampled_from([1, 2, 4]), st.integers(1, 3), st.integers(0, 1), st.integers(0, 1), st.integers(0, 99))
def test_all_to_all_gives_block_r_to_replica_r(replicas, size, split, joined, seed):
    x = drawn((replicas, 4 * size, 4), seed)
    found = together(lambda x: all_to_all(x, split, joined, replicas), x, replicas)
    blocks = [np.split(each, replicas, axis=split) for each in x]
    for replica, got in enumerate(found):
        right = np.concatenate([blocks[source][replica] for source in range(replicas)], axis=joined)
        np.testing.assert_array_equal(got, right)


def test_a_reduce_scatter_as_the_reference_shows_it():
    found = together(lambda x: reduce_scatter(x, replication_factor=2), np.arange(6.0).reshape(2, 3), 2)
    np.testing.assert_array_equal(found, [[0 + 3, 1 + 4], [2 + 5, 0]])


def test_each_replica_knows_its_index_and_takes_as_equal_what_it_is_told():
    def stage(x):
        equal = assume_equal_across_replicas({"a": x, "b": (x,)}, inplace=True)
        return equal["b"][0] * 0 + replication_index(name="which")

    found = together(stage, np.ones((4, 2)), 4)
    np.testing.assert_array_equal(found, np.arange(4)[:, None] * np.ones(2))
    _, (index,) = inferred([lambda x: x, lambda x: replication_index()], np.ones((4, 2)), 4)
    assert (index.tolist(), index.dtype) == ([0, 1, 2, 3], np.int32)


#: Functions of a variable of 6 elements and a replica's element of 6, to anything; and of those of all replicas.
LEARNED = {
    "sum": lambda z, group: cross_replica_sum(z, group) ** 2,
    "gather": lambda z, group: all_gather(z, group) ** 2 * anp.arange(1.0, group + 1)[:, None],
    "to all": lambda z, group: all_to_all(anp.reshape(z, (1, 6)), 1, 0, 2) ** 3,
    "ADD": lambda z, group: reduce_scatter(z, group) ** 2,
    "uneven": lambda z, group: reduce_scatter(z[:5], group) ** 2,
    "MUL": lambda z, group: reduce_scatter(z, group, "COLLECTIVE_OP_MUL") ** 2,
    "MIN": lambda z, group: reduce_scatter(z, group, "COLLECTIVE_OP_MIN") ** 2,
    "MAX": lambda z, group: reduce_scatter(z, group, "COLLECTIVE_OP_MAX") ** 2,
    "SQUARE_ADD": lambda z, group: reduce_scatter(z, group, "COLLECTIVE_OP_SQUARE_ADD") ** 2,
    "LOCAL": lambda z, group: reduce_scatter(z, group, "COLLECTIVE_OP_LOCAL") ** 2,
    "twice": lambda z, group: cross_replica_sum(cross_replica_sum(z, group) * z),
}
RATE = 1e-3


#: The losses of all replicas together, of z in each by group, shape (groups, group, 6).
LOSSES = {
    "sum": lambda every: every.shape[1] * np.sum(every.sum(axis=1) ** 2),
    "gather": lambda every: every.shape[1] * np.sum(every**2 * np.arange(1.0, every.shape[1] + 1)[:, None]),
    "to all": lambda every: np.sum(every**3),
    "uneven": lambda every: np.sum(every.sum(axis=1)[:, :5] ** 2),
    "LOCAL": lambda every: np.sum(
        [part[:, place] ** 2 for place, part in enumerate(np.split(every, every.shape[1], axis=2))]
    ),
    "twice": lambda every: every.shape[0] * every.shape[1] * np.sum(every.sum(axis=1) ** 2),
    **{name: lambda every, reduce=reduce: np.sum(reduce(every, axis=1) ** 2) for name, reduce in OPERATIONS.items()},
}


def learned(function, x, group, **options):
    """Return the variable behind a training on ``x``, shape (replicas, 6), in which each element comes twice."""
    replicas = len(x)
    kept = device(replicas)
    kept.allow_recompute = options.pop("allow_recompute", False)
    done = pipeline(
        [
            lambda x: anp.tanh(x + get_variable("v", np.linspace(0.2, 1.2, 6))),
            lambda z: anp.sum(function(z, group)),
        ],
        **{"gradient_accumulation_count": 4, "config": kept, **options},
        infeed_queue=IPUInfeedQueue(repeat([*x])),
        outfeed_queue=IPUOutfeedQueue(),
        optimizer_function=lambda loss: OptimizerFunctionOutput(
            CrossReplicaOptimizer(GradientDescentOptimizer(RATE)), loss
        ),
    )
    return done.variables["v"], done


def by_differences(name, x, group, step=1e-6):
    """Return the same by finite differences of the losses of all replicas, in one process."""
    v = np.linspace(0.2, 1.2, 6)

    def loss(v):
        return LOSSES[name](by_group(np.tanh(x + v), group))

    slopes = [(loss(v + e) - loss(v - e)) / (2 * step) for e in step * np.eye(6)]
    return v - RATE * 4 * np.array(slopes) / len(x)


@sampled(2)
@pytest.mark.parametrize(
    ("name", "replicas"),
    [
        *(pytest.param(name, 2, marks=slowest if place % 2 else ()) for place, name in enumerate(LEARNED)),
        *((name, 4) for name in LEARNED if name != "to all"),
    ],
)
def test_gradients_are_those_of_all_replicas_in_one_process(name, replicas):
    """In groups of 2; an all-to-all takes all replicas."""
    x = drawn((replicas, 6), 5)
    found, _ = learned(LEARNED[name], x, 2)
    np.testing.assert_allclose(found, by_differences(name, x, 2), rtol=1e-7)


def request_of(program):
    return program._session.job.request


SCHEDULES = ["grouped", "interleaved", "sequential", "gpipe", "1f1b", "zero_bubble_h1"]


@pytest.mark.parametrize("sync", ["lock_step", "point_to_point"])
def test_any_schedule_learns_the_same_also_by_halves_and_in_either_sync_mode(sync):
    """What is priced is what the Timeline shows: as often as the pass runs, in every replica."""
    x = drawn((2, 6), 5)
    expected, program = learned(LEARNED["uneven"], x, 2)
    request = request_of(program)
    for schedule in SCHEDULES:
        job = assemble(request.replace({"pipeline.schedule": schedule, "pipeline.sync": sync}))
        request.functions.feed.go_on(0)
        run = execute(job)
        np.testing.assert_allclose(run.learning.weights["v"], expected, rtol=1e-12)
        halves = schedule == "zero_bubble_h1"
        assert {kind for kind, _ in job.costs.collectives} == {0, 2, 3 if halves else 1} | ({1} if halves else set())
        priced = {
            kind: sum(each.cost.total_cycles for each in job.costs.collectives[kind, 1])
            for kind in (Pass.FORWARD, Pass.INPUT_GRADIENT if halves else Pass.BACKWARD)
        }
        took = run.timeline.end - run.timeline.start
        rows = run.timeline.rows(SpanKind.COLLECTIVE)
        assert took[rows].sum() == 2 * 4 * sum(priced.values())
        assert set(run.timeline.ipu[rows].tolist()) == {1, 3}


@pytest.mark.parametrize("mode", RecomputationMode)
def test_a_stage_that_is_computed_again_meets_again(mode):
    x = drawn((2, 6), 5)

    def first(x):
        return cross_replica_sum(x * get_variable("v", np.linspace(0.2, 1.2, 6)))

    def trained(recompute):
        config = device(2)
        config.allow_recompute = recompute
        return pipeline(
            [first, lambda z: anp.sum(z**2)],
            gradient_accumulation_count=4,
            config=config,
            pipeline_schedule=PipelineSchedule.Sequential if "Inter" in mode.name else PipelineSchedule.Grouped,
            recomputation_mode=mode if recompute else None,
            infeed_queue=IPUInfeedQueue([*x] * 4),
            outfeed_queue=IPUOutfeedQueue(),
            optimizer_function=lambda loss: OptimizerFunctionOutput(
                CrossReplicaOptimizer(GradientDescentOptimizer(RATE)), loss
            ),
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
    for elements in (4, 4096, 65536) if replicas < 64 or runs_slowest() else (4, 4096):
        x = np.ones((replicas, elements), np.float32)
        program, _ = inferred([lambda x: x, lambda x: cross_replica_sum(x, group)], x, replicas)
        ipus = [2 * replica + 1 for replica in range(replicas)]
        size = group or replicas
        groups = [ipus[first : first + size] for first in range(0, replicas, size)]
        choices = []
        for name, algorithm in ALGORITHMS["all_reduce"].items():
            if {"ladder": size % 2 == 0, "across pods": replicas == 64}.get(name, True):
                choices.append(
                    concurrent_cost(program.system, [algorithm(program.system, each, elements, 4) for each in groups])
                )
        rows = program.timeline.rows(SpanKind.COLLECTIVE)
        took = (program.timeline.end - program.timeline.start)[rows]
        totals[elements] = min(each.total_cycles for each in choices)
        assert took.tolist() == [totals[elements]] * 2 * replicas
        assert set(program.timeline.bytes[rows].tolist()) == {4 * elements}
    assert [*totals.values()] == sorted({*totals.values()})
    algorithm = program._session.job.costs.collectives[0, 1][0].algorithm
    assert (algorithm == "across pods") == (replicas == 64)


def test_what_it_costs_is_said_with_its_formula():
    x = np.ones((4, 6))
    program, _ = inferred(
        [lambda x: x, lambda x: cross_replica_sum(cross_replica_sum(x)) + reduce_scatter(x, 2)[0]], x, 4
    )
    job = program._session.job
    found = [each for each in terms_of(job.costs, job.plan, job.program, job.system) if "stage_1" in each.of]
    called = [each for each in found if "in forward" in each.of]
    assert list(dict.fromkeys(each.of for each in called)) == [
        f"all-reduce ({job.costs.collectives[0, 1][0].algorithm}) 1 in forward of pipeline_stage_1",
        f"all-reduce ({job.costs.collectives[0, 1][1].algorithm}) 2 in forward of pipeline_stage_1",
        f"reduce-scatter ({job.costs.collectives[0, 1][2].algorithm}) 3 in forward of pipeline_stage_1",
    ]
    for each in called:
        assert eval(each.formula(), {"ceil": math.ceil, "max": max}) == each.cycles
    assert sum(each.cycles for each in called) == sum(each.cost.total_cycles for each in job.costs.collectives[0, 1])


def learned_over(stages, elements, replicas, optimizer):
    """Train stages for three updates of four micro-batches in each replica; return the program and its losses."""
    outfeed = IPUOutfeedQueue()
    done = pipeline(
        stages,
        gradient_accumulation_count=4,
        repeat_count=3,
        config=device(replicas),
        infeed_queue=IPUInfeedQueue(elements),
        outfeed_queue=outfeed,
        optimizer_function=lambda loss: OptimizerFunctionOutput(optimizer, loss),
    )
    return done, outfeed.dequeue()[0]


def trained_by(hand, optimizer, replicas=4, forgotten=()):
    """Train two stages on drawn numbers, whose gradients stages average by hand or the optimizer does."""

    def variable(name, initial):
        found = get_variable(name, initial)
        return cross_replica_sum(found) / replicas if hand and name not in forgotten else found

    def first(x, y):
        return anp.tanh(anp.dot(x, variable("w", np.linspace(-1, 1, 12).reshape(3, 4)))), y

    def last(h, y):
        return anp.mean((anp.dot(h, variable("v", np.linspace(1, 2, 4))) - y) ** 2)

    rng = np.random.default_rng(1)
    elements = [(rng.normal(size=(5, 3)), rng.normal(size=5)) for _ in range(4 * replicas * 3)]
    return learned_over([first, last], elements, replicas, optimizer if hand else CrossReplicaOptimizer(optimizer))


def test_gradients_that_are_summed_by_hand_train_as_the_cross_replica_optimizer_does():
    by_hand, losses = trained_by(True, MomentumOptimizer(0.01, 0.9))
    by_optimizer, expected = trained_by(False, MomentumOptimizer(0.01, 0.9))
    np.testing.assert_allclose(losses, expected, rtol=1e-12)
    for name, value in by_optimizer.variables.items():
        np.testing.assert_allclose(by_hand.variables[name], value, rtol=1e-12)
    assert not len(by_hand.timeline.rows(SpanKind.ALL_REDUCE))
    assert len(by_optimizer.timeline.rows(SpanKind.ALL_REDUCE)) == 3
    assert not len(by_optimizer.timeline.rows(SpanKind.COLLECTIVE))


def test_replicas_that_learn_other_weights_are_refused():
    with pytest.raises(UnsupportedProgramError, match=r"^replicas that learn .* 'v' of replica 1 is another than that"):
        trained_by(True, MomentumOptimizer(0.01, 0.9), forgotten=("v",))
    with pytest.raises(
        UnsupportedProgramError, match=r"^optimizer_function: replicas that learn by themselves are not"
    ):
        trained_by(True, MomentumOptimizer(0.01, 0.9), forgotten=("v", "w"))


def normalised(batches, replicas):
    """Train on batches, normalised over the samples of all replicas; returns mean losses and variables."""

    def mean(x):
        return cross_replica_sum(anp.mean(x, axis=0)) / replicas

    def first(x, y):
        z = anp.dot(x, get_variable("w", np.linspace(-1, 1, 12).reshape(3, 4)))
        z = z - mean(z)
        return z / anp.sqrt(mean(z * z) + 1e-3), y

    def last(z, y):
        return anp.mean((anp.dot(anp.tanh(z), get_variable("v", np.linspace(1, 2, 4))) - y) ** 2)

    done, losses = learned_over([first, last], batches, replicas, CrossReplicaOptimizer(GradientDescentOptimizer(0.05)))
    return np.asarray(losses).reshape(12, replicas).mean(axis=1), done.variables


def test_replicas_that_normalise_together_train_as_one_with_all_of_their_samples():
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(12 * 20, 3)), rng.normal(size=12 * 20)
    losses, variables = normalised(list(zip(np.split(x, 12), np.split(y, 12), strict=True)), 1)
    for replicas in (2, 4):
        parts = 12 * replicas
        found, learned = normalised(list(zip(np.split(x, parts), np.split(y, parts), strict=True)), replicas)
        np.testing.assert_allclose(found, losses, rtol=1e-10)
        for name, value in variables.items():
            np.testing.assert_allclose(learned[name], value, rtol=1e-10)


def test_with_one_replica_nothing_is_done_together():
    program, (found,) = inferred([lambda x: x, lambda x: cross_replica_sum(all_gather(x, 1)[0])], np.ones((1, 3)), 1)
    plain, _ = inferred([lambda x: x, lambda x: x], np.ones((1, 3)), 1)
    assert found.tolist() == [[1, 1, 1]]
    np.testing.assert_array_equal(program.timeline.end, plain.timeline.end)
    assert not program._session.job.costs.collectives


def where(*replicas):
    """Whether the stage runs in one of these, as Python sees it."""
    return int(replication_index()) in replicas


ASTRAY = {
    "another operation": (
        lambda x: cross_replica_sum(x) if where(0, 1) else all_gather(x, 4)[0],
        r"replica 2 calls all_gather of float64\[3\] in groups of 4 where replica 0 calls all_reduce of float64\[3\]: "
        "all replicas call the same collectives in the same order",
    ),
    "another shape": (
        lambda x: x * anp.sum(cross_replica_sum(x[:1] if where(3) else x)),
        r"replica 3 calls all_reduce of float64\[1\] where replica 0 calls all_reduce of float64\[3\]",
    ),
    "none": (
        lambda x: x if where(1) else cross_replica_sum(x),
        r"replica 1 calls no further collective where replica 0 calls all_reduce of float64\[3\]",
    ),
    "one more": (
        lambda x: cross_replica_sum(cross_replica_sum(x)) if where(1, 2) else cross_replica_sum(x),
        r"replica 1 calls all_reduce of float64\[3\] where replica 0 calls no further collective",
    ),
    "only in a run": (
        lambda x: x if x[0] == 1 else cross_replica_sum(x),
        r"it calls all_reduce of float64\[3\], but it called none when it was tried",
    ),
    "more in a run": (
        lambda x: cross_replica_sum(x) if x[0] == 1 else cross_replica_sum(x) + cross_replica_sum(x * x),
        r"it calls all_reduce of float64\[3\] where it called no further collective when it was tried",
    ),
    "less in a run": (
        lambda x: cross_replica_sum(x) if x[0] == 1 else x,
        r"it calls no further collective where it called all_reduce of float64\[3\] when it was tried",
    ),
}


@pytest.mark.parametrize("name", ASTRAY)
def test_replicas_that_go_astray_are_told_and_never_wait_for_ever(name):
    function, text = ASTRAY[name]
    feed = IPUInfeedQueue([np.full(3, number) for number in (1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0)])
    with pytest.raises(ModelError, match=rf"^F1.\d of stage 'pipeline_stage_1' .*{text}|^stage .*{text}"):
        pipeline(
            [lambda x: x, function],
            gradient_accumulation_count=2,
            config=device(4),
            infeed_queue=feed,
            outfeed_queue=IPUOutfeedQueue(),
        )


def test_a_replica_that_fails_is_told_and_the_others_are_given_up():
    ended = []

    def stage(x):
        try:
            found = cross_replica_sum(x)
            if where(1):
                raise RuntimeError("out of luck")
            return cross_replica_sum(found)
        finally:
            ended.append(int(replication_index()))

    with pytest.raises(ModelError, match=r"^F1.0 of stage .* failed in execution 0: .*: RuntimeError: out of luck$"):
        together(stage, np.ones((4, 3)), 4)
    assert sorted(ended[-4:]) == [0, 1, 2, 3]


def test_a_run_goes_on_behind_one_that_has_failed():
    broken = []

    def stage(x):
        found = cross_replica_sum(x)
        if broken and where(1):
            raise RuntimeError("out of luck")
        return found

    outfeed = IPUOutfeedQueue()
    program = pipeline(
        [lambda x: x, stage],
        gradient_accumulation_count=2,
        config=device(2),
        infeed_queue=IPUInfeedQueue(repeat([np.ones(3), np.full(3, 2.0)])),
        outfeed_queue=outfeed,
    )
    broken.append(True)
    with pytest.raises(ModelError, match="out of luck"):
        program.run()
    broken.clear()
    program.run()
    assert {float(number) for number in np.ravel(outfeed.dequeue())} == {3.0}


def test_traces_of_replicas_do_not_meet():
    """A gradient inside a stage, taken with autograd, where replicas take turns in the middle of it."""

    def stage(x):
        slope = autograd.grad(lambda z: anp.sum(cross_replica_sum(z**2) * z))(x)
        return slope + cross_replica_sum(x)

    x = drawn((2, 3), 3)
    total = (x**2).sum(axis=0)
    # By replica: what its own z is multiplied with, and what its square adds to in all of them.
    right = total + 2 * x * x.sum(axis=0) + x.sum(axis=0)
    np.testing.assert_allclose(together(stage, x, 2), right, rtol=1e-12)
    np.testing.assert_allclose(by_turns(), [[6, 9], [6, 9]])


def by_turns():
    """Names that a stage counts are its own while the other replica runs."""

    def stage(x):
        with tf.variable_scope("a"):
            y = cross_replica_sum(x * tf.get_variable("w", [2], initializer=tf.constant_initializer(1.0)))
            return y + tf.get_variable("b", [2], initializer=tf.constant_initializer(1.0)) * [0.0, 1.0]

    program, (found,) = inferred([lambda x: x, stage], np.array([[2.0, 3.0], [4.0, 5.0]]), 2)
    assert sorted(program.variables) == ["a/b", "a/w"]
    return found


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: cross_replica_sum(x, 3), r"^replica_group_size: expected a number by which that of the device's"),
        (lambda x: all_gather(x, 8), r"^replication_factor: expected a number by which .* 4, can be divided, got 8 in"),
        (lambda x: reduce_scatter(x, 3), r"^replication_factor: .*, got 3 in stage 'pipeline_stage_1'$"),
        (
            lambda x: all_to_all(x, 0, 0, 2),
            r"^replication_factor: expected the number of replicas of the device, 4, got 2",
        ),
        (
            lambda x: all_to_all(x, 0, 0, 4),
            r"^split_dimension: expected one that 4 replicas cut into equal blocks, got 6$",
        ),
        (lambda x: all_to_all(x, 0, 1, 2), r"^concat_dimension: expected a dimension of a tensor of rank 1, got 1$"),
        (lambda x: reduce_scatter(x[None], 2), r"^x: expected a tensor of rank 1, got \(1, 6\)$"),
        (
            lambda x: cross_replica_sum(x, 5000),
            r"^replica_group_size: expected a whole number from 1 to 4096, got 5000$",
        ),
        (
            lambda x: reduce_scatter(x, 2, "COLLECTIVE_OP_MEAN"),
            r"^op: expected COLLECTIVE_OP_ADD, .* got 'COLLECTIVE_O",
        ),
    ],
)
def test_wrong_factors_and_forms_are_refused(function, text):
    with pytest.raises(ProgramError, match=text):
        together(function, np.ones((4, 6)), 4)


def test_wrong_types_are_refused():
    text = r"^x: expected a tensor of floating-point or whole numbers, got array"
    for function in (cross_replica_sum, lambda x: all_gather(x, 2), lambda x: reduce_scatter(x, 2)):
        with pytest.raises(ProgramTypeError, match=text):
            together(lambda x, function=function: function(x > 0), np.ones((2, 6)), 2)
    with pytest.raises(ProgramTypeError, match=r"^x: expected a tensor of whole numbers, got array"):
        together(lambda x: reduce_scatter(x, 2, "COLLECTIVE_OP_LOGICAL_OR"), np.ones((2, 6)), 2)


def test_replicas_do_it_with_variables_and_lists_and_losses_of_samples_too():
    def scaled(variable, x):
        weights = get_variable("weights", np.arange(1, 4, dtype=np.float32)) if variable is None else variable
        scores = x * cross_replica_sum(weights) + cross_replica_sum([x[0] * 0, x[1] * 0, 1.0])
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=np.array([0]), logits=scores[None] * 0)
        return scores * all_gather(weights, 2)[1] + cross_replica_sum(losses)

    elements, weights = np.array([[1, 2, 3], [4, 5, 6]], np.float32), np.arange(1, 4, dtype=np.float32)
    expected = (elements * 2 * weights + [0, 0, 2]) * weights + 2 * math.log(3)
    for variable in (None, tf.Variable(weights, name="weights")):
        found = contextvars.copy_context().run(together, partial(scaled, variable), elements, 2)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_tensors_of_the_host_are_refused():
    with tf.Graph().as_default():
        learning_rate = tf.placeholder(np.float32, [], name="rate")
    with pytest.raises(ProgramError, match=r"^Trying to capture the tensor <Placeholder 'rate' .* not a resource\. "):
        together(lambda x: x * cross_replica_sum(learning_rate), np.ones((2, 3)), 2)


@pytest.mark.parametrize(
    ("function", "call"),
    [
        ("cross_replica_sum", lambda: cross_replica_sum(1.0)),
        ("all_gather", lambda: all_gather(1.0, 2)),
        ("all_to_all", lambda: all_to_all(np.ones(2), 0, 0, 2)),
        ("reduce_scatter", lambda: reduce_scatter(np.ones(2), 2)),
        ("replication_index", replication_index),
    ],
)
def test_outside_of_a_stage_there_are_no_replicas(function, call):
    with pytest.raises(ProgramError, match=rf"^{function} was called outside of a pipeline stage: call it inside its"):
        call()


def test_no_gradient_comes_back_through_a_logical_operation():
    def stage(z, group):
        return z[:3] * reduce_scatter(z.astype(np.int32), group, "COLLECTIVE_OP_LOGICAL_AND")

    with pytest.raises(
        ModelError, match=r"no gradient comes back through reduce_scatter \(logical_and\) of int32\[6\]"
    ):
        learned(stage, drawn((2, 6), 5), 2)


def looped(body, replicas, n=2, shards=1):
    outfeed = IPUOutfeedQueue()
    config = device(replicas, shards)
    config.configure_ipu_system()
    elements = IPUInfeedQueue([np.full(2, 1.0 + replica) for replica in range(replicas)] * n)
    loops.repeat(n, lambda x: outfeed.enqueue(body(x)), [], elements)
    return outfeed.dequeue()


def test_a_loop_s_body_calls_collectives():
    found = contextvars.copy_context().run(looped, lambda x: cross_replica_sum(x) * (1 + replication_index()), 2)
    np.testing.assert_array_equal(found, [[[3, 3], [6, 6]]] * 2)


def sharded(x):
    with scopes.ipu_shard(0):
        y = cross_replica_sum(x)
    with scopes.ipu_shard(1):
        return all_gather(y * x, 2)


def test_a_sharded_loop_s_body_calls_collectives_and_does_not_know_its_replica():
    found = contextvars.copy_context().run(looped, sharded, 2, 2, 2)
    np.testing.assert_array_equal(found, [[[[3, 3], [6, 6]]] * 2] * 2)
    refused = [
        (lambda x: sharded(x) + replication_index(), r"the number of the replica is not known where a function is"),
        (
            lambda x: sharded(x) + cross_replica_sum(1.0),
            r"all_reduce of float32\[\] depends on no input and no variable",
        ),
    ]
    for body, text in refused:
        with pytest.raises(ModelError, match=text):
            contextvars.copy_context().run(looped, body, 2, 2, 2)
